"""Whether a kernel's output is right: equal to a float64 reference, and everywhere written and a number."""
