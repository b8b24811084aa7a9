# First call: does everything run and is it right; coarse sweep of each kernel where it should win.
from twin import stages
kernels={}; BF=1
def add(stem,**c):
    c.setdefault('DTYPE',BF); k=stem+' '+' '.join('%s=%s'%x for x in sorted(c.items())); kernels[k]=(stem,c); return k
def coop(b,tiles,clusters,lags,groups,a=0,dt=BF):
    r=[]
    for (bm,bn,cons,slots) in tiles:
        c=dict(BM=bm,BN=bn,BK=64,CONS=cons,CM=1,CN=1,GROUP=8,LAG=1,SLOTS=slots,A_COL=a,B_COL=b,DTYPE=dt); st=min(8,stages('wgmma_coop',c))
        for (cm,cn) in clusters:
            for l in lags:
                for g in groups: r.append(add('wgmma_coop',**dict(c,CM=cm,CN=cn,LAG=l,GROUP=g,STAGES=st)))
    return r
def ping(b,tiles,clusters,lags,groups,a=0,dt=BF):
    r=[]
    for (bm,bn,slots) in tiles:
        c=dict(BM=bm,BN=bn,BK=64,CM=1,CN=1,GROUP=8,LAG=1,SLOTS=slots,A_COL=a,B_COL=b,DTYPE=dt); st=min(8,stages('wgmma_pingpong',c))
        for (cm,cn) in clusters:
            for l in lags:
                for g in groups: r.append(add('wgmma_pingpong',**dict(c,CM=cm,CN=cn,LAG=l,GROUP=g,STAGES=st)))
    return r
def split(b,tiles,splits,bks=(64,),ctas=(1,),a=0,dt=BF):
    r=[]
    for (bm,bn,cons) in tiles:
        for bk in bks:
            for ct in ctas:
                c=dict(BM=bm,BN=bn,BK=bk,CONS=cons,SPLIT=1,CTAS=ct,A_COL=a,B_COL=b,DTYPE=dt); st=min(8,stages('wgmma_splitk',c))
                if st<2: continue
                for s in splits: r.append(add('wgmma_splitk',**dict(c,SPLIT=s,STAGES=st)))
    return r
def swap(b,bts,bws,splits,bks=(64,128),ctas=(1,),dt=BF):
    r=[]
    for bt in bts:
        for (bw,cons) in bws:
            for bk in bks:
                for ct in ctas:
                    c=dict(BW=bw,BT=bt,BK=bk,CONS=cons,SPLIT=1,CTAS=ct,B_COL=b,DTYPE=dt); st=min(12,stages('wgmma_swapab',c))
                    if st<2: continue
                    for s in splits: r.append(add('wgmma_swapab',**dict(c,SPLIT=s,STAGES=st)))
    return r
def gemv(b,m,dt=BF):
    r=[]
    if b:
        for w in (4,8):
            for rows in (1,2):
                for u in (2,4,8): r.append(add('gemv',B_COL=1,MROWS=m,WARPS=w,ROWS=rows,UNROLL=u,SPLIT=1,DTYPE=dt))
    else:
        for w in (4,8,16):
            for l in (8,16,32):
                for u in (1,2):
                    for s in (1,2,4,8):
                        if (32//l)*w*s>=16: r.append(add('gemv',B_COL=0,MROWS=m,WARPS=w,LANES=l,UNROLL=u,SPLIT=s,DTYPE=dt))
    return r
TILES=[(128,256,2,2),(128,256,2,4),(256,128,2,2),(128,192,2,1),(192,192,3,1),(128,128,2,2)]
CL=[(1,1),(2,1),(1,2)]
ragged=dict(wgmma_coop=[(1000,1000,1000,0),(300,520,200,16),(3000,4104,456,0)],wgmma_pingpong=[(1000,1000,1000,0),(300,520,200,16),(2056,3000,456,0),(3000,2056,1096,0)],wgmma_splitk=[(1000,1000,1000,0),(130,203,200,16),(64,64,64,0)],wgmma_swapab=[(17,1000,1000,0),(5,203,333,16)],gemv=[(1,1000,1000,0),(1,203,333,16),(1,4099,520,8)])
races=[]
for b in (0,1):
    big=coop(b,TILES[:3],CL,(0,1),(8,))+coop(b,TILES[3:],CL[:2],(1,),(8,))+coop(b,TILES[:1],CL[1:],(0,),(4,16))+ping(b,[(64,256,2),(128,128,2)],CL,(0,1),(8,))
    mid=split(b,[(64,64,1),(128,64,2),(64,128,1),(128,128,2)],(1,2,4),(64,128))+coop(b,[(128,128,2,2),(64,128,1,2),(128,64,2,1)],[(1,1),(2,1)],(1,),(8,))
    m128=split(b,[(128,64,2),(128,128,2),(64,128,1),(128,256,2),(64,64,1)],(1,2,4,8),(64,128))+swap(b,[128],[(128,2),(64,1)],(2,4),(64,))
    m16=swap(b,[16],[(64,1),(128,2)],(1,2,4,8),(64,128),(1,2))
    m1=gemv(b,1)+swap(b,[8],[(64,1),(128,2)],(2,4),(128,))
    races+=[(4096,4096,4096,1,0,b,big,8,6),(8192,8192,8192,1,0,b,big,6,8),(1024,1024,1024,1,0,b,mid+m128,6,3),(1000,1000,1000,1,0,b,mid,4,3),(512,512,512,1,0,b,mid,6,3),(128,4096,4096,1,0,b,m128,6,3),(16,4096,4096,1,0,b,m16,8,3),(1,4096,4096,1,0,b,m1,8,3)]
# other A layout: correctness only
coop(0,[(128,256,2,2)],[(2,1)],(1,),(8,),a=1); coop(1,[(256,128,2,2)],[(1,2)],(0,),(8,),a=1); split(0,[(128,128,2)],(2,),a=1)
if __name__=='__main__': print(len(kernels))
