"""What `lm_eval run --log_samples` wrote (0.4.x), read as records and samples.

    <output>/<model>/results_<time>.json          scores and settings of a run
    <output>/<model>/samples_<task>_<time>.jsonl  a line a document and filter

Older versions have no time in their names, or the model's; some runs are named by their user. All are found by what
stands in them. Whatever is not as lm_eval writes it is a ValueError with the file's path.
"""
