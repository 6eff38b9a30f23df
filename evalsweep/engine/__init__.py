"""The only floor that knows lm_eval, torch and transformers: tasks, shots, models, and one evaluation."""
