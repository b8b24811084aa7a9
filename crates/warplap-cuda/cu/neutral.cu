// Other work in front of a timed launch, as programs have it: 256 KB of memory go up by one. It is never launched early
// and lets nobody begin early, so who comes next waits for its end. With `ns` it lasts that long: the host's head start.
//
// Meanwhile one thread for each spot stirs what the launch will find, so that no kernel gains by remembering: two elements
// of an input change places, or one element of an output is poisoned, and it is counted whether the launch before has
// written the one that was poisoned for it.
typedef unsigned long long word;

enum { SWAP = 1, POISON = 2, MOST = 12 };

struct Spot {
  word at, elements;
  unsigned int bytes, kind;
  word bits;
};

struct Perturbation {
  word* state;  // elements that were looked at, those nobody had written, then where each spot was poisoned last
  unsigned int count, check;
  Spot spots[MOST];
};

__device__ word drawn(word seed) {
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebull;
  return seed ^ (seed >> 31);
}

__device__ word load(word at, unsigned int bytes) {
  if (bytes == 2) return *(volatile unsigned short*)at;
  return bytes == 4 ? *(volatile unsigned int*)at : *(volatile word*)at;
}

__device__ void store(word at, unsigned int bytes, word bits) {
  if (bytes == 2) *(volatile unsigned short*)at = (unsigned short)bits;
  else if (bytes == 4) *(volatile unsigned int*)at = (unsigned int)bits;
  else *(volatile word*)at = bits;
}

__device__ void perturb(const Spot& spot, word turn, int number, word* state, unsigned int check) {
  word seed = turn * MOST + number + 1, first = spot.at + drawn(2 * seed) % spot.elements * spot.bytes;
  if (spot.kind == SWAP) {
    word second = spot.at + drawn(2 * seed + 1) % spot.elements * spot.bytes;
    word a = load(first, spot.bytes), b = load(second, spot.bytes);
    store(first, spot.bytes, b);
    store(second, spot.bytes, a);
  } else {
    word* last = state + 2 + number;
    if (check) {
      atomicAdd(state, 1ull);
      if (load(*last, spot.bytes) == spot.bits) atomicAdd(state + 1, 1ull);
    }
    store(first, spot.bytes, spot.bits);
    *last = first;
  }
}

extern "C" __global__ void neutral(unsigned int* x, long long ns, const __grid_constant__ Perturbation s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned int turn = x[i];
  x[i] = turn + 1;
  if (threadIdx.x == 0 && blockIdx.x < s.count) perturb(s.spots[blockIdx.x], turn, blockIdx.x, s.state, s.check);
  if (ns > 0) {
    long long from, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - from < ns);
  }
}
