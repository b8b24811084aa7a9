# The record: every shape of the brief, both dtypes, both layouts of B; the candidates are the spaces recommended in RESULTS.md.
from cands import *
races=[]; chains=[]
CL=[(1,1),(2,1),(1,2)]
def both(k): return k+more(k,PDL=1)
for dt in (1,0):
  for b in (0,1):
    big=coop(b,[(128,256,2,2)],CL[1:],(0,1),(8,16),dt=dt)+coop(b,[(128,256,2,4)],CL,(0,1),(8,),dt=dt)+coop(b,[(128,192,2,1)],CL[:2],(0,1),(8,),dt=dt)+ping(b,[(128,128,2)],CL[1:],(1,),(8,16),dt=dt)
    big=both(big); bur=[k for k in big if 'wgmma_coop' in k and 'BN=256' in k and ('PDL=1' in k or 'CM=2' in k)]
    small=both(split(b,[(64,128,1),(128,64,2)],(1,),(64,128),share=CL,dt=dt)+split(b,[(64,64,1)],(1,2),(64,128),dt=dt)+split(b,[(128,128,2)],(1,2),(64,),dt=dt)+coop(b,[(64,128,1,2),(128,64,2,1),(128,128,2,2)],CL,(1,),(8,),dt=dt))
    rag=small+more(small,L2P=0)
    mid=both(split(b,[(128,64,2)],(1,2),(64,128),dt=dt)+split(b,[(128,128,2)],(1,2),(64,),share=CL,dt=dt)+split(b,[(128,192,2)],(1,3),(64,),dt=dt)+coop(b,[(128,128,2,2),(128,64,2,1),(128,192,2,1),(128,256,2,2)],CL,(1,),(8,),dt=dt)+swap(b,[128],[(64,1)],(2,),(64,128),dt=dt))
    ms=lambda bt: both(swap(b,[bt],[(64,1)],(1,2),(64,128),(1,2),dt=dt)+swap(b,[bt],[(64,1)],(4,),(128,),(1,2),dt=dt))
    g=both(gemv(b,1,dt=dt))
    races+=[(4096,4096,4096,dt,0,b,big,4,3),(4096,4096,4096,dt,0,b,bur,4,7,.02),(8192,8192,8192,dt,0,b,big,4,3),(4096,11008,4096,dt,0,b,big,3,1.5),(8192,28672,8192,dt,0,b,[k for k in big if 'PDL=1' in k],3,3),
      (1024,1024,1024,dt,0,b,small,4,1),(1000,1000,1000,dt,0,b,rag,4,1),(512,512,512,dt,0,b,small,4,1),(128,4096,4096,dt,0,b,mid,4,1),(256,4096,4096,dt,0,b,mid,4,1),(16,4096,4096,dt,0,b,ms(16),4,1),(1,4096,4096,dt,0,b,ms(8)+g,4,1)]
    if dt==1: races+=[(2048,2048,2048,dt,0,b,big+mid,4,1),(64,4096,4096,dt,0,b,ms(64),2,1),(32,4096,4096,dt,0,b,ms(32),2,1),(8,4096,4096,dt,0,b,ms(8),2,1),(1,1024,1024,dt,0,b,ms(8)+g,2,1),(1,11008,4096,dt,0,b,ms(8)+g,2,1),(16,11008,4096,dt,0,b,ms(16),2,1)]
    if dt==1: chains+=[more([x],PDL=1)[0] for x in (big[0],small[0],ms(16)[1],g[0])]+[k for k in big if 'pingpong' in k and 'PDL=1' in k][:1]+[k for k in mid if 'SPLIT=2' in k and 'splitk' in k and 'PDL=1' in k][:1]
# A stored by columns: right in every kernel that takes it
coop(0,[(128,256,2,2)],[(2,1)],(1,),(8,),a=1); coop(1,[(256,128,2,2)],[(1,2)],(0,),(8,),a=1); split(0,[(128,128,2)],(2,),a=1); ping(0,[(128,128,2)],CL,(1,),(8,),a=1)
if __name__=='__main__': print(len(kernels),len(races),len(chains))
