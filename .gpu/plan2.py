# Second call: clusters without the GPU-wide membar, PDL, relaxed meeting of split parts, L2 promotion at ragged rows.
from cands import *
races=[]
CL=[(1,1),(2,1),(1,2)]
for b in (0,1):
    T=[(128,256,2,2),(256,128,2,2)]
    big=coop(b,T,CL[1:],(0,1),(4,8,16))+coop(b,T,CL[:1],(1,),(8,16))+coop(b,[(128,256,2,4)],CL,(0,1),(8,))+coop(b,[(192,192,3,1)],CL,(0,1),(8,))+coop(b,[(128,192,2,1)],CL,(1,),(8,))+coop(b,T+[(128,128,2,2)],[(2,2)],(1,),(8,))+ping(b,[(64,256,2),(128,128,2)],CL[1:]+[(2,2)],(0,1),(8,))
    sm=[(64,128,1,2),(128,64,2,1),(128,128,2,2),(64,256,1,4),(64,64,1,1),(128,64,1,1)]+([(64,32,1,1)] if b else [])
    small=coop(b,sm,CL+[(2,2)],(1,),(8,))+coop(b,sm[:2],CL,(0,),(8,))
    small+=more(small,PDL=1)
    sk=split(b,[(64,64,1),(128,64,2),(64,128,1)],(1,),(64,128)); sk+=more(sk,PDL=1)
    rag=more([k for k in small if 'PDL=1' in k and 'BN=64' not in k],L2P=0)+more([k for k in small if 'PDL=1' in k and 'BN=64' not in k],L2P=2)
    m128=split(b,[(128,64,2),(64,64,1),(64,128,1)],(2,4),(64,))+swap(b,[128],[(64,1)],(2,4),(64,))+swap(b,[64],[(64,1),(128,2)],(1,2),(64,)); m128+=more(m128,RELAXED=1); m128+=more(m128,PDL=1)
    m16=swap(b,[16],[(64,1)],(2,4),(128,),(1,2))+swap(b,[16],[(128,2)],(4,),(64,),(1,2)); m16+=more(m16,RELAXED=1); m16+=more(m16,PDL=1)
    g=gemv(b,1); m1=g+more(g,PDL=1)+[k for k in more(more(swap(b,[8],[(64,1)],(2,4),(128,)),RELAXED=1),PDL=1)]+more(swap(b,[8],[(64,1)],(2,),(128,)),RELAXED=1)
    races+=[(4096,4096,4096,1,0,b,big,12,4),(4096,4096,4096,1,0,b,big,6,8,.02),(8192,8192,8192,1,0,b,big,8,6),(4096,11008,4096,1,0,b,big,6,4),(1024,1024,1024,1,0,b,small+sk,8,2),(1000,1000,1000,1,0,b,small+sk+rag,8,2),(512,512,512,1,0,b,small+sk,8,2),(128,4096,4096,1,0,b,m128,10,2),(16,4096,4096,1,0,b,m16,8,2),(1,4096,4096,1,0,b,m1,8,2)]
if __name__=='__main__': print(len(kernels))
