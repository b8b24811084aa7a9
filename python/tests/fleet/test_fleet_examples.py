"""The example for Kubernetes is sound as far as that can be told without a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with ray: pip install ray==2.60.0")
FILE = Path(__file__).parents[3] / "examples" / "fleet" / "rayjob.yaml"
ENVIRONMENT = Path(__file__).parents[2] / "make-environment"


def test_the_ray_job_has_what_matters() -> None:
    job = yaml.safe_load(FILE.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?", job["metadata"]["name"])
    spec = job["spec"]
    words = spec["entrypoint"].split()
    assert words[:3] == ["warplap", "fleet", "tune"] and words[words.index("--engine") + 1] == "ray"
    assert spec["shutdownAfterJobFinishes"] is True and spec["backoffLimit"] >= 1
    cluster = spec["rayClusterSpec"]
    # The version that is tested is the version that is shown.
    assert f"ray=={cluster['rayVersion']}" in ENVIRONMENT.read_text()
    assert cluster["authOptions"]["mode"] == "token"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        store = {e["name"]: e for e in container["env"]}["WARPLAP_STORE"]
        # A password stands in a secret, never in the file.
        assert "secretKeyRef" in store["valueFrom"] and "value" not in store
    assert len({group["template"]["spec"]["containers"][0]["image"] for group in groups}) == 1
    for group in cluster["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpu"] == "1" and int(limits["cpu"]) >= 2
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
