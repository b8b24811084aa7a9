// Hopper's own instructions as one-line functions: mbarrier, TMA, wgmma, setmaxnreg, stmatrix, clusters. No CUDA header
// is needed. Comes in: -DDTYPE=0 (f16), 1 (bf16) or 2 (tf32), -DBATCH=1 where tensor maps have a third dimension. Goes
// out: names used by the kernels that include this text. NVRTC: pass this file as a named header, or paste it in place
// of the #include line.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
struct alignas(64) TMap { u64 opaque[16]; };
#ifndef DI
#define DI __device__ __forceinline__
#endif
#ifndef BATCH
#define BATCH 0
#endif
#ifndef DTYPE
#define DTYPE 1
#endif
#if DTYPE == 1
#define ELEM "bf16"
#else
#define ELEM "f16"
#endif

DI u32 smem_addr(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// mbarrier. A wait on parity p returns once the phase of that parity has completed; a fresh barrier lets parity 1 pass.
DI void mb_init(u32 b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count)); }
DI void mb_expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
DI void mb_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
// In a peer's shared memory. The default scope on purpose: .release.cluster puts a MEMBAR.ALL.GPU before every arrival
// (measured: twice the run time), and a consumer that only says "read" has no write to publish.
DI void mb_arrive_at(u32 b, u32 cta) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r];}"
      ::"r"(b), "r"(cta) : "memory");
}
DI bool mb_try(u32 b, u32 parity) {
  u32 done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done) : "r"(b), "r"(parity) : "memory");
  return done != 0;
}
DI void mb_wait(u32 b, u32 parity) {
#ifdef SPIN_LIMIT
  for (u32 i = 0; !mb_try(b, parity); i++)
    if (i > SPIN_LIMIT) asm volatile("trap;");
#else
  while (!mb_try(b, parity)) {}
#endif
}
DI void mb_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// How the side that fills a ring ends where peers of a cluster say when they have read: whatever was filled has been
// read by all. Such a word may be on its way when its sender is done, and no meeting of the cluster waits for it: a CTA
// that left before it came would be arrived at in vain (a launch failure). `q` and `phase` are those of the stage that
// would be filled next; one that never was does not hold it up. Behind this a CTA may leave without meeting others: what
// it sent was read, and its consumers have waited for what was sent to it.
template <int stages_> DI void ring_ends(u32 empties, int q, u32 phase) {
  for (int i = 0; i < stages_; i++) {
    mb_wait(empties + q * 8, phase);
    if (++q == stages_) q = 0, phase ^= 1;
  }
}

// TMA: x is the contiguous coordinate, y the strided one, both in elements; z, with BATCH, is the matrix of the batch.
#if BATCH
#define TMA_RANK "3d"
#define TMA_AT(x, y, z) "{%" #x ", %" #y ", %" #z "}"
#else
#define TMA_RANK "2d"
#define TMA_AT(x, y, z) "{%" #x ", %" #y "}"
#endif
DI void tma_prefetch(const TMap* m) { asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory"); }
DI void tma_load(u32 dst, const TMap* m, u32 bar, int x, int y, int z = 0) {
  asm volatile("cp.async.bulk.tensor." TMA_RANK ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " TMA_AT(3, 4, 5) "], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "r"(z) : "memory");
}
DI void tma_load_multicast(u32 dst, const TMap* m, u32 bar, int x, int y, u16 ctas, int z = 0) {
  asm volatile("cp.async.bulk.tensor." TMA_RANK ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, " TMA_AT(3, 4, 6) "], [%2], %5;" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "h"(ctas), "r"(z) : "memory");
}
// Three coordinates: a matrix seen as panels of 64 columns (x in the panel, y the line, z the panel), so that one copy
// brings several panels.
DI void tma_load3(u32 dst, const TMap* m, u32 bar, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "r"(z) : "memory");
}
DI void tma_load3_multicast(u32 dst, const TMap* m, u32 bar, int x, int y, int z, u16 ctas) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "r"(z), "h"(ctas) : "memory");
}
DI void tma_store(const TMap* m, u32 src, int x, int y, int z = 0) {
  asm volatile("cp.async.bulk.tensor." TMA_RANK ".global.shared::cta.bulk_group [%0, " TMA_AT(2, 3, 4) "], [%1];"
      ::"l"(m), "r"(src), "r"(x), "r"(y), "r"(z) : "memory");
}
// What is written is not read again soon: it leaves L2 before what others still read.
DI void tma_store_passing(const TMap* m, u32 src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3}], [%1], %4;"
      ::"l"(m), "r"(src), "r"(x), "r"(y), "l"(0x12F0000000000000ull) : "memory");
}
DI void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last n_ groups of stores have been read from shared memory.
template <int n_ = 0> DI void tma_store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n_) : "memory"); }
DI void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Clusters. The unaligned forms let a warp arrive with its lanes apart.
DI u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DI void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
DI void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
DI void cluster_sync() { cluster_arrive(); cluster_wait(); }
// Orders lifetimes, not data: barriers are initialised (after mb_init_fence). Not for leaving: what was read from peers,
// or said to them by an arrival, may still be on its way when this arrives, and its CTA then leaves under it (seen:
// CUDA_ERROR_LAUNCH_FAILED now and then). Reads end with cluster_arrive_read, rings with ring_ends.
DI void cluster_meet() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); cluster_wait(); }
DI void cluster_arrive_early() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
DI u32 peer_addr(u32 a, u32 cta) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(cta)); return r; }
DI float4 peer_load4(u32 a) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(a) : "memory");
  return v;
}
// Says that what was read from peers is here. The store takes a value made of every load, so all of them have come back
// before it is done, and it stays in front of the arrival: a fence of the GPU's (.release) is not needed for that. `spare`
// is a word of shared memory of this thread's own.
DI void cluster_arrive_read(u32 spare, float of_all) {
  asm volatile("st.volatile.shared.f32 [%0], %1; barrier.cluster.arrive.relaxed;" ::"r"(spare), "f"(of_all) : "memory");
}
// Sixteen bytes into a peer's shared memory; they count on the peer's mbarrier, whose waiters see them.
DI void peer_send4(u32 a, u32 bar, float x, float y, float z, float w) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];"
      ::"r"(a), "r"(bar), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
DI void shared_zero4(u32 a) { asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(a), "r"(0) : "memory"); }
DI float4 shared_load4(u32 a) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(a) : "memory");
  return v;
}
DI uint4 shared_load8(u32 a) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
  return v;
}

// Programmatic dependent launch, where the chip has it: does nothing unless the host asked for it. Nothing of global
// memory may be touched before pdl_wait.
#if __CUDA_ARCH__ >= 900
DI void pdl_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DI void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DI void pdl_launch() {}
DI void pdl_wait() {}
#endif

DI void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DI void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
template <int R> DI void regs_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DI void regs_less() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }
// Registers of a thread of the producer and of cons_ consuming warpgroups. There are no more than the block was given
// at its start: who asks for more waits for ever.
template <int cons_> struct Roles {
  static constexpr int start = 65536 / (128 * (cons_ + 1)) / 8 * 8, producer = cons_ == 3 ? 32 : 40, consumer = cons_ == 3 ? 160 : 232;
  static_assert(producer + cons_ * consumer <= (cons_ + 1) * start, "registers");
};
DI u32 pack(float lo, float hi) {
  u32 r;
  asm("cvt.rn." ELEM "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DI void stmatrix4(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
DI void stmatrix4_trans(u32 a, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
      ::"r"(a), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
DI void stmatrix2_trans(u32 a, u32 r0, u32 r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(a), "r"(r0), "r"(r1) : "memory");
}

// wgmma. Shared-memory operands are 128-byte-swizzled panels of 64 elements by rows, 1024-byte aligned.
// K-major: rows of the operand follow each other at 128 B, 8-row groups at 1024 B, the next k16 is 32 B on inside a
// panel. MN-major: k rows at 128 B, 8-k groups at 1024 B, the next 64 rows of the operand are one panel (`leading`
// bytes) on, the next k16 2048 B.
DI u64 mma_desc(u32 a, u32 leading) {
  return (u64)((a & 0x3FFFF) >> 4) | ((u64)(leading >> 4) << 16) | ((u64)(1024 >> 4) << 32) | (1ull << 62);
}
DI void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DI void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DI void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Accumulators may be read from here on: without it the compiler may move a read before the wait that precedes it.
template <int r_> DI void mma_done(float (&d)[r_]) {
#pragma unroll
  for (int i = 0; i < r_; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// One m64 x N x k16 step; TA and TB say that the operand is MN-major; `keep` 0 overwrites the accumulator.
template <int N, int TA, int TB> struct Mma;
#define WG_R4 "%0,%1,%2,%3"
#define WG_R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WG_R16 WG_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WG_R24 WG_R16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WG_R32 WG_R24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WG_R40 WG_R32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WG_R48 WG_R40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WG_R56 WG_R48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WG_R64 WG_R56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WG_R72 WG_R64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WG_R80 WG_R72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define WG_R88 WG_R80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WG_R96 WG_R88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define WG_R104 WG_R96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define WG_R112 WG_R104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define WG_R120 WG_R112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define WG_R128 WG_R120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define WG_O4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG_O8(i) WG_O4(i), WG_O4(i + 4)
#define WG_O16(i) WG_O8(i), WG_O8(i + 8)
#define WG_O24(i) WG_O16(i), WG_O8(i + 16)
#define WG_O32(i) WG_O24(i), WG_O8(i + 24)
#define WG_O40(i) WG_O32(i), WG_O8(i + 32)
#define WG_O48(i) WG_O40(i), WG_O8(i + 40)
#define WG_O56(i) WG_O48(i), WG_O8(i + 48)
#define WG_O64(i) WG_O56(i), WG_O8(i + 56)
#define WG_O72(i) WG_O64(i), WG_O8(i + 64)
#define WG_O80(i) WG_O72(i), WG_O8(i + 72)
#define WG_O88(i) WG_O80(i), WG_O8(i + 80)
#define WG_O96(i) WG_O88(i), WG_O8(i + 88)
#define WG_O104(i) WG_O96(i), WG_O8(i + 96)
#define WG_O112(i) WG_O104(i), WG_O8(i + 104)
#define WG_O120(i) WG_O112(i), WG_O8(i + 112)
#define WG_O128(i) WG_O120(i), WG_O8(i + 120)
#define WG_MMA(N, R, A, B, P, X, Y)                                                                                      \
  template <int TA, int TB> struct Mma<N, TA, TB> {                                                                      \
    static DI void step(float (&d)[R], u64 a, u64 b, int keep) {                                                         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEM "." ELEM \
                   " {" WG_R##R "}, %" #A ", %" #B ", p, 1, 1, %" #X ", %" #Y ";}"                                       \
                   : WG_O##R(0) : "l"(a), "l"(b), "r"(keep), "n"(TA), "n"(TB));                                          \
    }                                                                                                                    \
  };
WG_MMA(8, 4, 4, 5, 6, 7, 8)
WG_MMA(16, 8, 8, 9, 10, 11, 12)
WG_MMA(32, 16, 16, 17, 18, 19, 20)
WG_MMA(48, 24, 24, 25, 26, 27, 28)
WG_MMA(64, 32, 32, 33, 34, 35, 36)
WG_MMA(80, 40, 40, 41, 42, 43, 44)
WG_MMA(96, 48, 48, 49, 50, 51, 52)
WG_MMA(112, 56, 56, 57, 58, 59, 60)
WG_MMA(128, 64, 64, 65, 66, 67, 68)
WG_MMA(144, 72, 72, 73, 74, 75, 76)
WG_MMA(160, 80, 80, 81, 82, 83, 84)
WG_MMA(176, 88, 88, 89, 90, 91, 92)
WG_MMA(192, 96, 96, 97, 98, 99, 100)
WG_MMA(208, 104, 104, 105, 106, 107, 108)
WG_MMA(224, 112, 112, 113, 114, 115, 116)
WG_MMA(240, 120, 120, 121, 122, 123, 124)
WG_MMA(256, 128, 128, 129, 130, 131, 132)

#if DTYPE == 2
// One m64 x N x k8 step in tf32: the first operand from registers (rows lane/4 and eight on; k lane%4 and four on), the
// second K-major from shared memory.
template <int N> struct Mma32;
#define WG_MMA32(N, R, A, B, C, D, S, P)                                                                                 \
  template <> struct Mma32<N> {                                                                                          \
    static DI void step(float (&d)[R], const u32 (&a)[4], u64 b, int keep) {                                             \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32"   \
                   " {" WG_R##R "}, {%" #A ", %" #B ", %" #C ", %" #D "}, %" #S ", p, 1, 1;}"                            \
                   : WG_O##R(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));                        \
    }                                                                                                                    \
  };
WG_MMA32(64, 32, 32, 33, 34, 35, 36, 37)
WG_MMA32(128, 64, 64, 65, 66, 67, 68, 69)
WG_MMA32(192, 96, 96, 97, 98, 99, 100, 101)
WG_MMA32(256, 128, 128, 129, 130, 131, 132, 133)
// A number of shared memory, rounded to tf32.
DI u32 round_tf32(u32 a) {
  float x;
  u32 r;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(a) : "memory");
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
#else
// The same with the first operand in registers, as mma.sync holds it: two numbers of rows lane/4 and 8 on (a[0], a[1]),
// and of the same rows 8 columns on (a[2], a[3]); a warp has 16 rows.
template <int N, int TB> struct MmaHeld;
#define WG_HELD(N, R, A0, A1, A2, A3, B, P, Y)                                                                           \
  template <int TB> struct MmaHeld<N, TB> {                                                                              \
    static DI void step(float (&d)[R], const u32 (&a)[4], u64 b, int keep) {                                             \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %" #P ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." ELEM "." ELEM \
                   " {" WG_R##R "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #Y ";}"               \
                   : WG_O##R(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TB));               \
    }                                                                                                                    \
  };
WG_HELD(64, 32, 32, 33, 34, 35, 36, 37, 38)
WG_HELD(128, 64, 64, 65, 66, 67, 68, 69, 70)
WG_HELD(256, 128, 128, 129, 130, 131, 132, 133, 134)
#endif

// Where one operand of a stage lies in shared memory and how TMA brings it. rows_ x deep_ elements; mn_ says MN-major
// (deep_ rows of rows_ elements in memory); share_ CTAs of the cluster each bring one part and multicast it.
template <int rows_, int deep_, int mn_, int share_> struct Operand {
  static constexpr int panels = mn_ ? (rows_ + 63) / 64 : deep_ / 64; // a last panel used in part is loaded whole
  // Whole panels are dealt out, or every panel is cut into runs of rows (a multiple of 8, for the swizzle).
  static constexpr int whole = mn_ ? panels % share_ == 0 : rows_ % (8 * share_) != 0;
  static constexpr int box = (mn_ ? deep_ : rows_) / (whole ? 1 : share_);
  static_assert(!whole || panels % share_ == 0, "this operand cannot be shared so");
  static constexpr u32 panel = (mn_ ? deep_ : rows_) * 128, bytes = panels * panel;
  static DI void load(u32 dst, const TMap* m, u32 bar, int row, int k, int part, u16 ctas, int z = 0) {
    constexpr int n = whole ? panels / share_ : panels;
#pragma unroll
    for (int i = 0; i < n; i++) {
      const int p = whole ? part * n + i : i, cut = whole ? 0 : part * box;
      const int x = mn_ ? row + p * 64 : k + p * 64, y = mn_ ? k + cut : row + cut;
      const u32 at = dst + p * panel + cut * 128;
      if (share_ > 1) tma_load_multicast(at, m, bar, x, y, ctas, z);
      else tma_load(at, m, bar, x, y, z);
    }
  }
  // Descriptor of the operand's rows from `row` (a multiple of 64 when MN-major); add `step(kk)` for the k16 step kk.
  static DI u64 desc(u32 base, int row) { return mn_ ? mma_desc(base + (row / 64) * panel, panel) : mma_desc(base + row * 128, 16); }
  static constexpr __device__ u64 step(int kk) { return (mn_ ? kk * 2048 : (kk / 4) * panel + (kk % 4) * 32) >> 4; }
};

// What the products share. A ring of stages holds one block of K of both operands each; `full` and `empty` barriers
// pass them on. The side that fills: both operands of one stage, each from its own map, its own part and to its own
// CTAs. `From` says how one comes from its map; pair.cuh has one that knows two.
struct OwnMap {
  template <class Op> DI void bring(u32 at, const TMap* m, u32 bar, int row, int k, int part, u16 ctas, int z) const {
    Op::load(at, m, bar, row, k, part, ctas, z);
  }
};
template <class First, class Second, class From = OwnMap> struct Feed {
  static constexpr u32 bytes = First::bytes + Second::bytes;
  const TMap *first, *second;
  u32 base, fulls;
  int part1, part2;
  u16 ctas1, ctas2;
  From from;
  DI void load(int row, int col, int k, int z, int q) const {
    const u32 bar = fulls + q * 8, at = base + q * bytes;
    mb_expect(bar, bytes);
    from.template bring<First>(at, first, bar, row, k, part1, ctas1, z);
    from.template bring<Second>(at + First::bytes, second, bar, col, k, part2, ctas2, z);
  }
  // The blocks of K from `k` to `end` of one tile, into a ring that has been filled once.
  template <int bk_, int stages_> DI void run(int row, int col, int z, int k, int end, u32 empties) const {
    int q = 0;
    u32 phase = 0;
    for (; k < end; k++) {
      mb_wait(empties + q * 8, phase);
      load(row, col, k * bk_, z, q);
      if (++q == stages_) q = 0, phase ^= 1;
    }
  }
  // All tiles of a persistent CTA, to the end of the ring; `ahead` stages of the first are asked for already.
  template <int bk_, int stages_, class Order> DI void walk(const Order& tiles, int blocks, int ahead, u32 empties) const {
    int q = ahead % stages_, row, col, z;
    u32 phase = ahead == stages_ ? 0 : 1;
    for (int t = tiles.first; t < tiles.count; t += tiles.step, ahead = 0) {
      tiles.at(t, row, col, z);
      for (int k = ahead; k < blocks; k++) {
        mb_wait(empties + q * 8, phase);
        load(row, col, k * bk_, z, q);
        if (++q == stages_) q = 0, phase ^= 1;
      }
    }
    if constexpr (Order::ctas > 1) ring_ends<stages_>(empties, q, phase);
  }
};

// The order in which a persistent grid of clusters (cm_ x cn_ tiles each) visits the output tiles: bands of group_ tile
// rows.
template <int bm_, int bn_, int cm_, int cn_, int group_> struct Tiles {
  static constexpr int ctas = cm_ * cn_; // of a cluster
  int tm, tn, first, step, count, rm, rn;
  DI Tiles(int M, int N, int L, u32 rank) {
    tm = (M + bm_ * cm_ - 1) / (bm_ * cm_), tn = (N + bn_ * cn_ - 1) / (bn_ * cn_), count = tm * tn * (BATCH ? L : 1);
    first = blockIdx.x / (cm_ * cn_), step = gridDim.x / (cm_ * cn_), rm = rank / cn_, rn = rank % cn_;
  }
  DI void at(int t, int& row, int& col, int& z) const {
    z = BATCH ? t / (tm * tn) : 0;
    if (BATCH) t -= z * tm * tn;
    const int band = t / (group_ * tn), top = band * group_, high = min(tm - top, group_), in = t - top * tn;
    row = ((top + in % high) * cm_ + rm) * bm_, col = ((in / high) * cn_ + rn) * bn_;
  }
  // Who takes this CTA's part of A (the tiles beside its own) and of B (those above and below), as the copy engine is
  // told.
  DI u16 row_ctas() const { return (u16)(((1 << cn_) - 1) << (rm * cn_)); }
  DI u16 col_ctas() const {
    u16 ctas = 0;
    for (int i = 0; i < cm_; i++) ctas |= (u16)(1 << (i * cn_ + rn));
    return ctas;
  }
  // Whether a CTA of the cluster writes into this one's stages; and the word to one that does that a stage was read.
  DI bool shares_with(int cta) const { return cm_ * cn_ > 1 ? cta < cm_ * cn_ && (cta / cn_ == rm || cta % cn_ == rn) : cta == 0; }
  DI void release_stage(u32 barrier, int cta) const {
    if (cm_ * cn_ > 1) mb_arrive_at(barrier, cta);
    else mb_arrive(barrier);
  }
};

// The side that multiplies: one warpgroup's 64-row parts from `part` on over the blocks of K from `from` to `to`.
// `release(q)` says that a stage was read, one step later where lag_ is 1; `issued(k)` is called once the products of
// block k are on their way.
template <class First, class Second, class MM, int bk_, int stages_, int lag_, int mi_, int r_, class Release, class Issued>
DI void multiply(float (&d)[mi_][r_], u32 base, u32 fulls, int part, int from, int to, int& q, u32& phase, Release release, Issued issued) {
  int before = 0;
  for (int k = from; k < to; k++) {
    const u32 at = base + q * (First::bytes + Second::bytes);
    mb_wait(fulls + q * 8, phase);
    mma_fence();
#pragma unroll
    for (int i = 0; i < mi_; i++) {
      const u64 a = First::desc(at, (part + i) * 64), b = Second::desc(at + First::bytes, 0);
#pragma unroll
      for (int kk = 0; kk < bk_ / 16; kk++) MM::step(d[i], a + First::step(kk), b + Second::step(kk), k > from || kk > 0);
    }
    mma_commit();
    issued(k);
    mma_wait<lag_>();
    if (lag_ == 0 || k > from) release(lag_ ? before : q);
    before = q;
    if (++q == stages_) q = 0, phase ^= 1;
  }
  if (lag_) {
    mma_wait<0>();
    release(before);
  }
#pragma unroll
  for (int i = 0; i < mi_; i++) mma_done(d[i]);
}

// One 64-row panel of wide_ columns of accumulators, packed and swizzled in shared memory as its tensor map says.
template <int wide_> DI void stage_panel(u32 panel, const float* v, int warp, int lane) {
  const int r = warp * 16 + (lane & 15), swizzle = wide_ == 64 ? r & 7 : wide_ == 32 ? (r >> 1) & 3 : (r >> 2) & 1;
#pragma unroll
  for (int c = 0; c < wide_; c += 16) {
    const float* w = v + c / 2;
    stmatrix4(panel + r * wide_ * 2 + (((c / 8 + (lane >> 4)) ^ swizzle) << 4), pack(w[0], w[1]), pack(w[2], w[3]),
        pack(w[4], w[5]), pack(w[6], w[7]));
  }
}

// The same 64 rows by wide_ columns turned, for a column-major C: boxes of tall_ rows (16, 32, 64) by wide_ columns
// after each other, each swizzled as its tensor map says.
template <int tall_, int wide_> DI void stage_turned(u32 panel, const float* v, int warp, int lane) {
  const u32 box = panel + warp * 16 / tall_ * (tall_ * wide_ * 2);
  const int chunk = warp * 16 % tall_ / 8 + (lane >> 3 & 1);
#pragma unroll
  for (int c = 0; c < wide_; c += 16) {
    const float* w = v + c / 2;
    const int n = c + (lane >> 4) * 8 + (lane & 7), swizzle = tall_ == 64 ? n & 7 : tall_ == 32 ? (n >> 1) & 3 : (n >> 2) & 1;
    stmatrix4_trans(box + n * tall_ * 2 + ((chunk ^ swizzle) << 4), pack(w[0], w[1]), pack(w[2], w[3]), pack(w[4], w[5]), pack(w[6], w[7]));
  }
}

// A warpgroup's finished sums on their way to C from `row` and `col` on: panels of wide_ columns staged in shared
// memory, slots_ at a time, and stored by TMA while others are staged. What was stored before has been read when the
// first is staged; the last stores are not waited for.
template <int wide_, int slots_, int mi_, int r_> DI void store_tile(const float (&d)[mi_][r_], const TMap* c,
    u32 staged, int row, int col, int z, int barrier) {
  constexpr int across = r_ * 2 / wide_, panels = mi_ * across;
  constexpr u32 bytes = 64 * wide_ * 2;
  const int tid = threadIdx.x & 127;
#pragma unroll
  for (int p0 = 0; p0 < panels; p0 += slots_) {
    if (tid == 0) tma_store_wait_read();
    named_sync(barrier, 128);
#pragma unroll
    for (int p = p0; p < p0 + slots_ && p < panels; p++)
      stage_panel<wide_>(staged + (p - p0) * bytes, &d[p / across][p % across * (wide_ / 2)], tid >> 5, tid & 31);
    async_fence();
    named_sync(barrier, 128);
    if (tid == 0) {
#pragma unroll
      for (int p = p0; p < p0 + slots_ && p < panels; p++)
        tma_store(c, staged + (p - p0) * bytes, col + p % across * wide_, row + p / across * 64, z);
      tma_store_commit();
    }
  }
}
