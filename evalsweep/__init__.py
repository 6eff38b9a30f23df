"""evalsweep: language-model evaluations whose scores hold up."""

__version__ = "0.1.0"
