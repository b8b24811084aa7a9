// Other work in front of a timed launch, as programs have it: 256 KB of memory go up by one. It is never launched early
// and lets nobody begin early, so who comes next waits for its end. With `ns` it lasts that long: the host's head start.
extern "C" __global__ void neutral(unsigned int* x, long long ns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] += 1;
  if (ns > 0) {
    long long from, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - from < ns);
  }
}
