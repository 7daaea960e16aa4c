"""Energy and saddle point from products with the kernel, for kernels that do not fit in memory."""
