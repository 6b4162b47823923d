"""The kernels' operations on a GPU, in Triton. Importing this needs neither triton nor a GPU."""
