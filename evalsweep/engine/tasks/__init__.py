"""What is asked: lm_eval's tasks, their data, their shots and their prompts."""
