"""What becomes of answers: metrics and samples, numbers and votes, code that is run."""
