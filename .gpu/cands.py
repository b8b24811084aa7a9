# Builders of candidate lists, shared by the plans.
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
def split(b,tiles,splits,bks=(64,),ctas=(1,),a=0,dt=BF,share=((1,1),)):
    r=[]
    for (bm,bn,cons) in tiles:
        for bk in bks:
            for ct in ctas:
                c=dict(BM=bm,BN=bn,BK=bk,CONS=cons,SPLIT=1,CM=1,CN=1,CTAS=ct,A_COL=a,B_COL=b,DTYPE=dt); st=min(8,stages('wgmma_splitk',c))
                for s in splits:
                    st=min(8,stages('wgmma_splitk',dict(c,SPLIT=s)))
                    if st<2 or (bn//s)%16: continue
                    for (cm,cn) in share:
                        if s*cm*cn<=8: r.append(add('wgmma_splitk',**dict(c,SPLIT=s,CM=cm,CN=cn,STAGES=st)))
    return r
def swap(b,bts,bws,splits,bks=(64,128),ctas=(1,),dt=BF,share=(1,)):
    r=[]
    for bt in bts:
        for (bw,cons) in bws:
            for bk in bks:
                for ct in ctas:
                    c=dict(BW=bw,BT=bt,BK=bk,CONS=cons,SPLIT=1,SHARE=1,CTAS=ct,B_COL=b,DTYPE=dt); st=min(12,stages('wgmma_swapab',c))
                    for s in splits:
                        st=min(12,stages('wgmma_swapab',dict(c,SPLIT=s)))
                        if st<2: continue
                        for h in share:
                            if s*h<=8 and (bt%(8*h)==0 or bk//64%h==0): r.append(add('wgmma_swapab',**dict(c,SPLIT=s,SHARE=h,STAGES=st)))
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
def more(keys,**h):
    """the same device code under other host axes (PDL, L2P) or -D flags"""
    return [add(kernels[k][0],**dict(kernels[k][1],**h)) for k in keys]
ragged=dict(wgmma_coop=[(1000,1000,1000,0),(300,200,200,16),(3000,4104,456,0)],wgmma_pingpong=[(1000,1000,1000,0),(300,200,200,16),(2056,3000,456,0),(3000,2056,1096,0)],wgmma_splitk=[(1000,1000,1000,0),(130,200,200,16),(64,64,64,0),(300,264,1992,8)],wgmma_swapab=[(17,1000,1000,0),(5,203,333,16),(70,520,1992,0)],gemv=[(1,1000,1000,0),(1,203,333,16),(1,4099,520,8)])
