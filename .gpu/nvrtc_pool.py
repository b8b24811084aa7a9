# NVRTC through ctypes: compile(source, {-D}) -> (cubin, log). Finds the library in /work/venv-cuda, in torch's wheels, or through the loader.
import ctypes, glob, os, re, sys
HERE=os.path.dirname(os.path.abspath(__file__))
def roots():
    for r in (HERE+'/src', HERE+'/../crates'):
        if os.path.isdir(r): return r
def find(name):
    for p in glob.glob(roots()+'/**/'+name, recursive=True): return p
    raise FileNotFoundError(name)
def source(stem):
    s=open(find(stem+'.cu')).read()
    return s.replace('#include "hopper.cuh"', open(find('hopper.cuh')).read())
_lib=None
def lib():
    global _lib
    if _lib: return _lib
    pats=['/work/venv-cuda/lib/python3*/site-packages/nvidia/cu13/lib']+[p+'/nvidia/cu13/lib' for p in sys.path if 'site-packages' in p]+['/usr/local/cuda/lib64']
    for pat in pats:
        for d in glob.glob(pat):
            n=glob.glob(d+'/libnvrtc.so.13'); b=glob.glob(d+'/libnvrtc-builtins.so.13*')
            if n and b:
                ctypes.CDLL(b[0],ctypes.RTLD_GLOBAL); _lib=ctypes.CDLL(n[0]); return _lib
    _lib=ctypes.CDLL('libnvrtc.so.13'); return _lib
def compile(job):
    stem,defs=job; L=lib(); src=source(stem).encode(); p=ctypes.c_void_p()
    opts=[b'-arch=sm_90a',b'-std=c++17',b'-Xptxas',b'-v']+[('-D%s=%s'%kv).encode() for kv in sorted(defs.items())]
    assert L.nvrtcCreateProgram(ctypes.byref(p),src,(stem+'.cu').encode(),0,None,None)==0
    arr=(ctypes.c_char_p*len(opts))(*opts); rc=L.nvrtcCompileProgram(p,len(opts),arr)
    n=ctypes.c_size_t(); L.nvrtcGetProgramLogSize(p,ctypes.byref(n)); log=ctypes.create_string_buffer(n.value); L.nvrtcGetProgramLog(p,log); log=log.value.decode()
    cubin=None
    if rc==0:
        L.nvrtcGetCUBINSize(p,ctypes.byref(n)); c=ctypes.create_string_buffer(n.value); L.nvrtcGetCUBIN(p,c); cubin=c.raw
    L.nvrtcDestroyProgram(ctypes.byref(p))
    regs=re.search(r'Used (\d+) registers',log); spill=re.search(r'(\d+) bytes spill stores',log)
    warn=[l for l in log.split('\n') if 'warning' in l.lower() or 'C75' in l]
    return dict(rc=rc,cubin=cubin,regs=int(regs.group(1)) if regs else None,spill=int(spill.group(1)) if spill else None,warn=warn,log=log if rc else '')
if __name__=='__main__':
    import time
    C=dict(DTYPE=1,A_COL=0,B_COL=0)
    tests=[('wgmma_coop',dict(C,BM=128,BN=256,BK=64,STAGES=4,CONS=2,CM=2,CN=1,GROUP=8,LAG=0,SLOTS=2)),
     ('wgmma_coop',dict(C,B_COL=1,A_COL=1,BM=256,BN=128,BK=64,STAGES=4,CONS=2,CM=1,CN=2,GROUP=8,LAG=1,SLOTS=2)),
     ('wgmma_coop',dict(C,BM=192,BN=192,BK=64,STAGES=4,CONS=3,CM=1,CN=1,GROUP=8,LAG=1,SLOTS=1)),
     ('wgmma_pingpong',dict(C,BM=128,BN=128,BK=64,STAGES=5,CM=2,CN=1,GROUP=8,LAG=1,SLOTS=2)),
     ('wgmma_splitk',dict(C,BM=128,BN=128,BK=64,STAGES=6,CONS=2,SPLIT=2,CM=2,CN=2,CTAS=1)),
     ('wgmma_swapab',dict(C,BW=128,BT=8,BK=128,STAGES=5,CONS=2,SPLIT=4,SHARE=2,CTAS=1)),
     ('gemv',dict(C,B_COL=0,WARPS=16,UNROLL=2,LANES=32,SPLIT=8,MROWS=1)),('gemv',dict(C,B_COL=1,WARPS=8,UNROLL=8,ROWS=1,MROWS=1,SPLIT=1))]
    for t in tests:
        t0=time.process_time(); r=compile(t); print(t[0],{k:v for k,v in t[1].items()},'rc',r['rc'],'regs',r['regs'],'spill',r['spill'],r['warn'],'%.2f s'%(time.process_time()-t0)); print(r['log'][:3000])
