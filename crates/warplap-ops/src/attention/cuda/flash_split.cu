// O = softmax(scale * Q*K' + mask) * V for few queries and many keys (decoding): keys and values are read once,
// straight into registers.
//
// Idea: the queries of all heads that share a head of K and V are packed as rows, 8 * COLUMNS of them to a block. The
// keys are cut into parts, one a block, and the part into steps of 16 * TILES keys, dealt out to the warps. A warp
// computes K*Q' and V'*W', so that keys and elements of values fill the 16 rows of mma.sync and queries its 8 columns:
// every 16 bytes a thread reads are a piece of an operand as it stands, or after pairing two keys. Nothing is staged,
// and a warp waits for nothing but memory; AHEAD asks for the next step's keys and values before this one's are used
// up. Warps, then blocks, bring their sums together by their maxima: blocks of one cluster through each other's shared
// memory (COMBINE 1), any number of blocks through scratch, where the last one adds up in a fixed order (COMBINE 2).
// Wins: queries times heads of a group up to 32. Limits: f16, bf16; D, DV multiples of 8 up to 256; strides and bases
// on 16 bytes; sm_80 (COMBINE 1: sm_90).
// Where the idea comes from: Flash-Decoding; packed groups are FlashAttention 3's; swapping the operands is
// FlashInfer's and others'.
//
// Axes (-D): WARPS (2..16), TILES (1, 2: 16-key tiles of a step), AHEAD (0, 1), COMBINE (0: one part, 1, 2), SPLITS
// (with COMBINE 1: blocks of a cluster, 2..8; else 1), RESIDENT.
// Facts of the problem (-D): DTYPE, D, DV, GROUP (heads of Q that share one of K and V), COLUMNS (packed rows / 8 of a
// block, rounded up: 1, 2, 4), LSE, PAGE (0, or keys of a page, a multiple of 16: `table` holds `entries` page numbers
// a batch, kb and vb go from page to page, and numbers outside of 0..pages hide their keys), LENGTHS (1: keys of each
// batch in `lengths`, 2: and the diagonal ends at the last of them), and what attention.cuh names. SHARED: bytes.
// Grid: ceil(sq * group / (8 * COLUMNS)) * kv heads * batch * parts blocks; with COMBINE 2 scratch is one zero word a
// block row of that, then partial sums.
#include "ampere.cuh"
#include "attention.cuh"
#if COMBINE == 1
#include "hopper.cuh"
#endif

constexpr int NT = WARPS * 32, ROWS = COLUMNS * 8, STEP = TILES * 16, KC = (D + 31) / 32, VC = (DV + 63) / 64;
constexpr int LINE = VC * 64 + 4; // floats of one row of sums in shared memory
// One warp's or block's: sums, then for every row its maximum, its sum and two words of nothing.
constexpr int ENTRY = ROWS * LINE + ROWS * 4;
constexpr int NEAR = WARPS < 8 ? WARPS : 8; // entries of warps that are asked for at once
static_assert((WARPS + 1) * ENTRY * 4 == SHARED, "the host counts shared memory as the kernel does");
static_assert(D % 8 == 0 && DV % 8 == 0 && (PAGE % 16 == 0), "pieces of 16 bytes, pages of whole tiles");

// Sixteen bytes that are read once.
DI uint4 ask(const elem* p, bool there) {
  uint4 v = make_uint4(0, 0, 0, 0);
  if (there)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
  return v;
}
DI u32 word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
// The 8x8 matrix of 16-bit elements the warp holds, rows and columns exchanged.
DI u32 turn_matrix(u32 x) {
  u32 y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
// What a share taken against maximum m counts against `most`; nothing has been seen where m is -inf.
DI float share_of(float m, float most) { return m == LOWEST ? 0.f : exp2_fast(m - most); }

// Adds up `count` entries, of which `get(entry, place)` gives four floats, and hands every four columns of a row to
// `put`. The entries of several are asked for before the first is used: they may lie far away.
template <int together_, class Get, class Put>
DI void add_up(int rows, int count, int start, int stride, Get get, Put put) {
  for (int i = start; i < rows * (DV / 4); i += stride) {
    const int r = i / (DV / 4), c = i % (DV / 4) * 4;
    float top = LOWEST, all = 0.f;
    float4 x = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int first = 0; first < count; first += together_) {
      float4 f[together_], y[together_];
#pragma unroll
      for (int p = 0; p < together_; p++) {
        const bool there = first + p < count;
        f[p] = there ? get(first + p, ROWS * LINE + r * 4) : make_float4(LOWEST, 0.f, 0.f, 0.f);
        y[p] = there ? get(first + p, r * LINE + c) : make_float4(0.f, 0.f, 0.f, 0.f);
      }
      float now = top;
#pragma unroll
      for (int p = 0; p < together_; p++) now = fmaxf(now, f[p].x);
      const float kept = share_of(top, now);
      top = now, all *= kept, x.x *= kept, x.y *= kept, x.z *= kept, x.w *= kept;
#pragma unroll
      for (int p = 0; p < together_; p++) {
        const float k = share_of(f[p].x, now);
        all = fmaf(f[p].y, k, all), x.x = fmaf(y[p].x, k, x.x), x.y = fmaf(y[p].y, k, x.y);
        x.z = fmaf(y[p].z, k, x.z), x.w = fmaf(y[p].w, k, x.w);
      }
    }
    put(r, c, top, all, x);
  }
}

// What is read is not __restrict__: that is a promise that nobody writes it for the kernel's whole life, and the
// assembler lifts such loads over the wait for the kernel before this one (seen in SASS).
extern "C" __global__ void __launch_bounds__(NT, RESIDENT)
#if COMBINE == 1
    __cluster_dims__(SPLITS, 1, 1)
#endif
        flash_split(const elem* Q, const elem* K, const elem* V,
                    const void* mask, const float* slopes, elem* __restrict__ O,
                    float* __restrict__ lse, const int* table, const int* lengths,
                    u32* scratch, int batch, int heads, int sq, int sk, int lower, int upper, int parts, int entries,
                    int pages, float scale, float cap, u64 qb, u64 qh, u64 qr, u64 kb, u64 kh, u64 kr, u64 vb, u64 vh,
                    u64 vr, u64 ob, u64 oh, u64 orow, u64 mb, u64 mh, u64 mr) {
  extern __shared__ __align__(16) float room[];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  constexpr int group = GROUP;
  if (COMBINE < 2) parts = SPLITS; // a constant
  const int unit = blockIdx.x / parts, part = blockIdx.x - unit * parts;
  const int total = sq * group, chunks = (total + ROWS - 1) / ROWS, kv = heads / group;
  const int chunk = unit % chunks, hk = unit / chunks % kv, b = unit / chunks / kv, first = chunk * ROWS,
            rows = min(ROWS, total - first);
  overlap_begin();
  if (LENGTHS) {
    const int whole = sk;
    sk = min(max(lengths[b], 0), whole);
    if (LENGTHS == 2) lower += sk - whole, upper += sk - whole; // the diagonal ends at the batch's own last key
  }
  const int oldest = first / group, newest = (first + rows - 1) / group; // queries of these rows
  const int seen = CAUSAL ? min(sk, newest + upper + 1) : sk, from = WINDOW ? max(oldest + lower, 0) / STEP : 0;
  const int steps = max((seen + STEP - 1) / STEP - from, 0);
  const int begin = from + (int)((long long)steps * part / parts),
            end = from + (int)((long long)steps * (part + 1) / parts);
  K += (PAGE ? 0 : b * kb) + hk * kh, V += (PAGE ? 0 : b * vb) + hk * vh;
  const int* mine = PAGE ? table + (u64)b * entries : nullptr;

  u32 q[COLUMNS][KC][4];
#pragma unroll
  for (int n = 0; n < COLUMNS; n++) {
    const int r = first + n * 8 + g, i = r / group;
    const elem* line = Q + b * qb + (hk * group + r - i * group) * qh + i * qr;
#pragma unroll
    for (int c = 0; c < KC; c++) {
      const uint4 x = ask(line + c * 32 + t * 8, n * 8 + g < rows && c * 32 + t * 8 < D);
      q[n][c][0] = x.x, q[n][c][1] = x.y, q[n][c][2] = x.z, q[n][c][3] = x.w;
    }
  }
  const float k2 = SOFTCAP ? 2.f * LOG2E * scale / cap : scale * LOG2E;
  float o[COLUMNS][VC * 4][4], most[COLUMNS][2], sum[COLUMNS][2];
#pragma unroll
  for (int n = 0; n < COLUMNS; n++) {
    most[n][0] = most[n][1] = LOWEST, sum[n][0] = sum[n][1] = 0.f;
#pragma unroll
    for (int i = 0; i < VC * 4; i++) o[n][i][0] = o[n][i][1] = o[n][i][2] = o[n][i][3] = 0.f;
  }

  uint4 k[TILES][2][KC], v[TILES][4][VC];
  const u64 own_k = g * kr + t * 8, own_v = t * 2 * vr + g * 8;
  // The pages of the step that is asked for next, and of the one whose scores are computed: a number is looked at a
  // step before it is followed, so that keys do not wait for it. What is none is -1.
  constexpr int ROOM = PAGE ? PAGE : 1;
  int page[TILES] = {}, held[TILES] = {};
  auto look_up = [&](int step) {
    if (PAGE)
#pragma unroll
      for (int u = 0; u < TILES; u++) {
        const int key = step * STEP + u * 16, number = step < end && key < sk ? mine[key / ROOM] : -1;
        page[u] = number >= 0 && number < pages ? number : -1;
      }
  };
  auto ask_keys = [&](int step) {
#pragma unroll
    for (int u = 0; u < TILES; u++) {
      const int key = step * STEP + u * 16;
      const elem* line = K + (PAGE ? page[u] * kb + key % ROOM * kr : key * kr) + own_k;
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int c = 0; c < KC; c++) {
          const bool there =
              step < end && (!PAGE || page[u] >= 0) && key + g + half * 8 < sk && (D % 32 == 0 || c * 32 + t * 8 < D);
          k[u][half][c] = ask(line + half * 8 * kr + c * 32, there);
        }
    }
  };
  auto ask_values = [&](int step) {
#pragma unroll
    for (int u = 0; u < TILES; u++) {
      const int key = step * STEP + u * 16;
      const elem* line = V + (PAGE ? page[u] * vb + key % ROOM * vr : key * vr) + own_v;
#pragma unroll
      for (int i = 0; i < 4; i++) { // keys 2t, 2t + 1, and those 8 further
        const int at = (i & 1) + (i >> 1) * 8;
#pragma unroll
        for (int c = 0; c < VC; c++) {
          const bool there =
              step < end && (!PAGE || page[u] >= 0) && key + t * 2 + at < sk && (DV % 64 == 0 || c * 64 + g * 8 < DV);
          v[u][i][c] = ask(line + at * vr + c * 64, there);
        }
      }
    }
  };
  look_up(begin + warp);
  if (AHEAD) ask_keys(begin + warp), ask_values(begin + warp);
  for (int step = begin + warp; step < end; step += WARPS) {
    const int key0 = step * STEP;
    if (!AHEAD) ask_keys(step), ask_values(step);
#pragma unroll
    for (int u = 0; u < TILES; u++) held[u] = page[u];
    look_up(step + WARPS);
    float s[COLUMNS][TILES][4];
    u32 w[COLUMNS][TILES][2];
    // The order of elements inside 32 is ours to choose as long as both operands agree: a thread's 8 neighbours make
    // two steps.
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
      for (int u = 0; u < TILES; u++) {
        s[n][u][0] = s[n][u][1] = s[n][u][2] = s[n][u][3] = 0.f;
#pragma unroll
        for (int c = 0; c < KC; c++) {
          const uint4 x = k[u][0][c], y = k[u][1][c];
          const u32 even[4] = {x.x, y.x, x.y, y.y}, odd[4] = {x.z, y.z, x.w, y.w};
          mma_step(s[n][u], even, q[n][c][0], q[n][c][1]);
          mma_step(s[n][u], odd, q[n][c][2], q[n][c][3]);
        }
      }
    if (AHEAD) ask_keys(step + WARPS);
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
      float m[2] = {LOWEST, LOWEST};
#pragma unroll
      for (int u = 0; u < TILES; u++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int key = key0 + u * 16 + g + (e >> 1) * 8, r = first + n * 8 + t * 2 + (e & 1), i = r / group,
                    h = hk * group + r - i * group;
          float x = s[n][u][e] * k2;
          if (SOFTCAP) x = cap * LOG2E * (1.f - 2.f * inverse_fast(1.f + exp2_fast(x)));
          if (ALIBI) x -= (r < total ? slopes[h] : 0.f) * LOG2E * fabsf((float)(i + upper - key));
          if (MASK && r < total && key < sk) {
            const u64 at = b * mb + h * mh + (i >> SQUARE) * mr + (key >> SQUARE);
            if (MASK == 1) x += added_of(widen(reinterpret_cast<const elem*>(mask)[at]), LOG2E);
            else if (reinterpret_cast<const unsigned char*>(mask)[at] == 0) x = LOWEST;
          }
          if (key >= sk || (CAUSAL && key - i > upper) || (WINDOW && key - i < lower)) x = LOWEST;
          if (PAGE && held[u] < 0) x = LOWEST;
          s[n][u][e] = x, m[e & 1] = fmaxf(m[e & 1], x);
        }
      float again[2];
      bool grew = false;
#pragma unroll
      for (int e = 0; e < 2; e++) {
#pragma unroll
        for (int x = 4; x < 32; x *= 2) m[e] = fmaxf(m[e], __shfl_xor_sync(~0u, m[e], x));
        again[e] = 1.f;
        if (m[e] - most[n][e] > (float)LAZY) again[e] = exp2_fast(most[n][e] - m[e]), most[n][e] = m[e], grew = true;
        sum[n][e] *= again[e];
        m[e] = most[n][e] == LOWEST ? 0.f : most[n][e];
      }
      if (__any_sync(~0u, grew)) {
#pragma unroll
        for (int i = 0; i < VC * 4; i++)
#pragma unroll
          for (int e = 0; e < 4; e++) o[n][i][e] *= again[e & 1];
      }
#pragma unroll
      for (int u = 0; u < TILES; u++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][u][e] = exp2_fast(s[n][u][e] - m[e & 1]), sum[n][e & 1] += s[n][u][e];
        w[n][u][0] = turn_matrix(pack_pair(s[n][u][0], s[n][u][1])),
        w[n][u][1] = turn_matrix(pack_pair(s[n][u][2], s[n][u][3]));
      }
    }
#pragma unroll
    for (int u = 0; u < TILES; u++)
#pragma unroll
      for (int c = 0; c < VC; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) { // elements 2i and 2i + 1 of the thread's eight: rows g and g + 8 of one tile
          const u32 a = word(v[u][0][c], i), d = word(v[u][1][c], i), e = word(v[u][2][c], i), f = word(v[u][3][c], i);
          const u32 x[4] = {__byte_perm(a, d, 0x5410), __byte_perm(a, d, 0x7632), __byte_perm(e, f, 0x5410),
                            __byte_perm(e, f, 0x7632)};
#pragma unroll
          for (int n = 0; n < COLUMNS; n++) mma_step(o[n][c * 4 + i], x, w[n][u][0], w[n][u][1]);
        }
    if (AHEAD) ask_values(step + WARPS);
  }

  // A warp's sums to shared memory: eight neighbouring elements of queries 2t and 2t + 1 a thread.
  float* own = room + warp * ENTRY;
#pragma unroll
  for (int n = 0; n < COLUMNS; n++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
#pragma unroll
      for (int x = 4; x < 32; x *= 2) sum[n][e] += __shfl_xor_sync(~0u, sum[n][e], x);
      const int r = n * 8 + t * 2 + e;
      if (g == 0) own[ROWS * LINE + r * 4] = most[n][e], own[ROWS * LINE + r * 4 + 1] = sum[n][e];
      if (r < rows)
#pragma unroll
        for (int c = 0; c < VC; c++) {
          float4* to = reinterpret_cast<float4*>(own + r * LINE + c * 64 + g * 8);
          to[0] = make_float4(o[n][c * 4][e], o[n][c * 4][e + 2], o[n][c * 4 + 1][e], o[n][c * 4 + 1][e + 2]);
          to[1] = make_float4(o[n][c * 4 + 2][e], o[n][c * 4 + 2][e + 2], o[n][c * 4 + 3][e], o[n][c * 4 + 3][e + 2]);
        }
    }
  __syncthreads();
  auto get_warp = [&](int p, int at) { return *reinterpret_cast<const float4*>(room + p * ENTRY + at); };
  auto finish = [&](int r, int c, float top, float all, float4 x) {
    const int i = (first + r) / group, h = hk * group + first + r - i * group;
    const float k = all > 0.f ? 1.f / all : 0.f;
    *reinterpret_cast<uint2*>(O + b * ob + h * oh + i * orow + c) =
        make_uint2(pack_pair(x.x * k, x.y * k), pack_pair(x.z * k, x.w * k));
    if (LSE && c == 0) lse[((u64)b * heads + h) * sq + i] = all > 0.f ? (top + log2_fast(all)) * LN2 : LOWEST;
  };
#if COMBINE == 0
  add_up<NEAR>(rows, WARPS, threadIdx.x, NT, get_warp, finish);
#elif COMBINE == 1
  float* merged = room + WARPS * ENTRY;
  add_up<NEAR>(rows, WARPS, threadIdx.x, NT, get_warp, [&](int r, int c, float top, float all, float4 x) {
    *reinterpret_cast<float4*>(merged + r * LINE + c) = x;
    if (c == 0) merged[ROWS * LINE + r * 4] = top, merged[ROWS * LINE + r * 4 + 1] = all;
  });
  cluster_sync();
  const u32 there = shared_addr(merged);
  float came = 0.f;
  add_up<SPLITS>(
      rows, SPLITS, part * NT + threadIdx.x, NT * SPLITS,
      [&](int p, int at) {
        const float4 v = peer_load4(peer_addr(there + at * 4, p));
        came += v.x; // four numbers come back together
        return v;
      },
      finish);
  cluster_arrive_read(shared_addr(room + threadIdx.x), came); // warps' own sums are no longer needed
  cluster_wait(); // no block may leave while a peer still reads it
#else
  const int units = gridDim.x / parts;
  float* partial = reinterpret_cast<float*>(scratch + (units + 3) / 4 * 4) + (u64)unit * parts * ENTRY;
  add_up<NEAR>(rows, WARPS, threadIdx.x, NT, get_warp, [&](int r, int c, float top, float all, float4 x) {
    float* to = partial + (u64)part * ENTRY;
    __stcg(reinterpret_cast<float4*>(to + r * LINE + c), x);
    if (c == 0) __stcg(reinterpret_cast<float4*>(to + ROWS * LINE + r * 4), make_float4(top, all, 0.f, 0.f));
  });
  __shared__ u32 arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(scratch + unit, 1);
  __syncthreads();
  if (arrived != parts - 1) return;
  __threadfence();
  if (threadIdx.x == 0) scratch[unit] = 0; // as the next launch wants it
  add_up<8>(
      rows, parts, threadIdx.x, NT,
      [&](int p, int at) { return __ldcg(reinterpret_cast<const float4*>(partial + (u64)p * ENTRY + at)); }, finish);
#endif
}
