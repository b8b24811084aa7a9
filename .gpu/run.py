# python3 .gpu/run.py [record|edges|widths]: compiles the plan's kernels in a process pool, then checks and times them in a watched child process.
import importlib, json, multiprocessing as mp, os, pickle, queue, subprocess, sys, threading, time
HERE=os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0,HERE)
import nvrtc_pool
def one(j):
    try: return nvrtc_pool.compile(j)
    except Exception as e: return dict(rc=-1,log=str(e),cubin=None,regs=None,spill=None,warn=[])
if __name__=='__main__':
    t0=time.time(); P=importlib.import_module(sys.argv[1] if len(sys.argv)>1 else 'record'); ks=P.kernels; D='/tmp/gpu_state_%d'%os.getpid(); os.makedirs(D)
    dev=lambda c:{k:v for k,v in c.items() if k not in('PDL','L2P')}
    uniq={}
    for k,(stem,c) in ks.items(): uniq.setdefault((stem,tuple(sorted(dev(c).items()))),len(uniq))
    with mp.get_context('fork').Pool(min(16,os.cpu_count())) as pool: got=pool.map(one,[(st,dict(t)) for (st,t) in uniq],chunksize=1)
    res=[got[uniq[(st,tuple(sorted(dev(c).items())))]] for st,c in ks.values()]
    kern={}
    told=set()
    for (k,(stem,c)),r in zip(ks.items(),res):
        if (r['rc'] or r['warn'] or (r['spill'] or 0)>64) and (stem,str(r['warn'])[:60],r['rc']) not in told and not told.add((stem,str(r['warn'])[:60],r['rc'])):
          if r['rc'] or r['warn'] or (r['spill'] or 0)>64: print('COMPILE',k,r['rc'],'spill',r['spill'],r['warn'][:2],r['log'][:300],flush=True)
        if r['rc']==0 and not any('C75' in w for w in r['warn']): kern[k]=(stem,c,r['cubin'])
    pickle.dump(dict(kernels=kern,ragged=P.ragged,races=P.races,chains=getattr(P,'chains',[])),open(D+'/jobs.pkl','wb'))
    print('compiled %d of %d in %.1f s'%(len(kern),len(ks),time.time()-t0),flush=True)
    if '--compile-only' in sys.argv: sys.exit()
    bad=[]
    for attempt in range(5):
        json.dump(bad,open(D+'/bad.json','w')); p=subprocess.Popen([sys.executable,'-u',HERE+'/bench.py',D],stdout=subprocess.PIPE,stderr=subprocess.STDOUT,text=True,cwd=HERE); q=queue.Queue()
        threading.Thread(target=lambda: ([q.put(l) for l in p.stdout],q.put(None)),daemon=True).start()
        last=None; ended=False; tail=[]
        while True:
            try: l=q.get(timeout=45)
            except queue.Empty: print('HANG',last,flush=True); p.kill(); p.wait(); break
            if l is None: break
            if l.startswith('START'): last=l.split(None,1)[1].strip(); continue
            if l.startswith('END'): ended=True
            print(l,end='',flush=True)
        p.wait()
        if ended: break
        print('CHILD DIED at',last,flush=True)
        if last is None: break
        bad.append(last)
    print('total %.0f s'%(time.time()-t0))
