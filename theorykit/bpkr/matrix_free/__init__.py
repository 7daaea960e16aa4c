"""The energy and the saddle point where the kernel does not fit in memory, from products with it."""
