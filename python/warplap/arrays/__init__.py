"""Arrays that are not torch's: NumPy's on the host, other libraries' on a CUDA device."""
