# python3 table.py results.jsonl...: the tables of RESULTS.md
import gzip,json,sys
R=[]
for f in sys.argv[1:]: R+=[json.loads(l) for l in (gzip.open(f,'rt') if f.endswith('gz') else open(f))]
G={}
for r in R: G.setdefault((r['M'],r['N'],r['K'],bool(r['burst']),r['dtype'],r['b_col']),[]).append(r)
def short(n): return n.replace('LAG1 ','').replace(' SHARE1','').replace('BK64 ','').replace(' CTAS1','').replace('CM1 CN1 ','').replace(' L2P3','')
print('| M x N x K | dtype | B | torch best: us, TF | with PDL: us, TF, ratio | without PDL: us, TF, ratio | winner (with PDL / without) |\n|---|---|---|---|---|---|---|')
order={}
for k in G: order.setdefault((k[:4]),len(order))
for k in sorted(G,key=lambda k:(order[k[:4]],k[4],k[5])):
    g=G[k]; t=min((r for r in g if r['name'].startswith('torch')),key=lambda r:r['us'])
    own=[r for r in g if not r['name'].startswith('torch')]; pick=lambda f:max((r for r in own if f(r)),key=lambda r:r['ratio'],default=None)
    a=pick(lambda r:'PDL1' in r['name']); b=pick(lambda r:'PDL1' not in r['name'])
    c=lambda r:'%.2f, %.1f, **%.3f**'%(r['us'],r['tf'],r['ratio']) if r else '-'
    print('| %dx%dx%d%s | %s | %s | %.2f, %.1f | %s | %s | %s / %s |'%(k[0],k[1],k[2],' (rested)' if k[3] else '',k[4],'col' if k[5] else 'row',t['us'],t['tf'],c(a),c(b),short(a['name']).replace(' PDL1','') if a else '-','same' if a and b and a['name'].replace(' PDL1','')==b['name'] else short(b['name']) if b else '-'))
