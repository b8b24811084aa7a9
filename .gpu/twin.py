# Host twins: what the Rust side must compute for each kernel. Pure arithmetic, no CUDA.
LIMIT=232448-512           # opt-in dynamic shared memory less the static barriers
cdiv=lambda a,b:-(-a//b)
def operand(rows,bk,mn,share):
    panels=cdiv(rows,64) if mn else bk//64       # a last panel used in part is loaded whole
    whole=panels%share==0 if mn else rows%(8*share)!=0     # deal out whole panels, or cut each into runs of rows
    box=(bk if mn else rows)//(1 if whole else share)
    return dict(bytes=panels*(bk if mn else rows)*128,box=box,bad=whole and panels%share!=0)
CLUSTERS={1:132,2:66,3:40,4:30,6:20,8:15}   # cuOccupancyMaxActiveClusters on this H200 with one CTA per SM (2, 4, 8 asked, the others guessed low): ask the driver
def panel_width(bn): return 64 if bn%64==0 else 32 if bn%32==0 else 16
def plan(stem,c,M,N,K,lda,ldb,ldc,a_col,b_col,sms=132):
    """-> threads, smem, grid, legal (reason or None), maps [(tensor, inner, outer, ld, box_inner, box_outer, swizzle bytes)], scalars"""
    amap=lambda box:('A',M if a_col else K,K if a_col else M,lda,64,box,128)
    bmap=lambda box:('B',K if b_col else N,N if b_col else K,ldb,64,box,128)
    if stem in('wgmma_coop','wgmma_pingpong'):
        coop=stem=='wgmma_coop'; cons=c['CONS'] if coop else 2
        a=operand(c['BM'],c['BK'],a_col,c['CN']); b=operand(c['BN'],c['BK'],not b_col,c['CM']); pw=panel_width(c['BN']); cl=c['CM']*c['CN']
        smem=c['STAGES']*(a['bytes']+b['bytes'])+cons*c['SLOTS']*64*pw*2+1024
        tiles=cdiv(M,c['BM']*c['CM'])*cdiv(N,c['BN']*c['CN'])
        why=None
        if smem>LIMIT: why='smem'
        if N%8: why='N'
        if a['box']>256 or b['box']>256 or a['bad'] or b['bad']: why='box'
        return dict(threads=128*(cons+1),smem=smem,grid=min(min(sms//cl,CLUSTERS[cl]),tiles)*cl,legal=why,maps=[amap(a['box']),bmap(b['box']),('C',N,M,ldc,pw,64,pw*2)],ptrs=[],scalars=[M,N,K])
    if stem=='wgmma_splitk':
        a=operand(c['BM'],c['BK'],a_col,c['CN']); b=operand(c['BN'],c['BK'],not b_col,c['CM'])
        cw=c['BN']//c['SPLIT']; pw=panel_width(cw)
        smem=max(c['STAGES']*(a['bytes']+b['bytes']),c['BM']*cw*2)+(c['SPLIT']-1)*c['BM']*cw*4+1024
        why=None
        if smem>LIMIT or c['CTAS']*(smem+1024+512)>233472: why='smem'
        if cw%16: why='BN'
        if N%8: why='N'
        if a['bad'] or b['bad'] or a['box']>256 or b['box']>256: why='box'
        return dict(threads=128*c['CONS']+32,smem=smem,grid=cdiv(M,c['BM']*c['CM'])*cdiv(N,c['BN']*c['CN'])*c['SPLIT']*c['CM']*c['CN'],legal=why,maps=[amap(a['box']),bmap(b['box']),('C',N,M,ldc,pw,64,pw*2)],ptrs=[],scalars=[M,N,K])
    if stem=='wgmma_swapab':
        t=operand(c['BT'],c['BK'],0,c['SHARE']); w=operand(c['BW'],c['BK'],not b_col,1)
        smem=max(c['STAGES']*(t['bytes']+w['bytes']),cdiv(c['BT']*(c['BW']*2+16),1024)*1024)+(c['SPLIT']-1)*c['BW']*c['BT']*4+1024
        why=None
        if smem>LIMIT or c['CTAS']*(smem+1024+512)>233472: why='smem'
        if a_col: why='a_col'
        if t['bad'] or t['box']>256 or w['box']>256: why='box'
        return dict(threads=128*c['CONS']+32,smem=smem,grid=cdiv(M,c['BT'])*cdiv(N,c['BW']*c['SHARE'])*c['SPLIT']*c['SHARE'],legal=why,maps=[amap(t['box']),bmap(w['box'])],ptrs=['C'],scalars=[M,N,K,ldc])
    if stem=='gemv':
        grid=cdiv(N,c['WARPS']*c['ROWS']) if b_col else cdiv(N,c['LANES']*8)*c['SPLIT']
        return dict(threads=c['WARPS']*32,smem=0,grid=grid,legal='a_col' if a_col else 'M' if M!=c['MROWS'] else None,maps=[],ptrs=['A','B','C'],scalars=[N,K,lda,ldb,ldc])
def stages(stem,c,most=16,ctas=1):
    """the deepest pipeline that fits, SLOTS/CTAS given"""
    for s in range(most,0,-1):
        d=dict(c,STAGES=s)
        if plan(stem,d,4096,4096,4096,4096,4096,4096,0,d['B_COL'])['legal']!='smem': return s
    return 0
