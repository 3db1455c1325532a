"""`tfcluster report`: one file with all that helps, and no secret in any of its bytes."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from string import Template

import pytest
import yaml
from unit.client_world import refuse

from tfcluster import report
from tfcluster.kube.api import PODS
from tfcluster.redaction import LEFT_OUT, Redaction, secrets_in
from tfcluster.report import Report, pack


def unpacked(packed):
    """Give the files of an archive, by their paths in its folder."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        return {one.name.partition("/")[2]: archive.extractfile(one).read().decode() for one in archive.getmembers()}


def reported(world, *options):
    return world.ok("report", "mnist", "--output-file", "-", *options).stdout_bytes


#: Each is planted in one place, and must be in no byte of the archive.
PLACES = (
    "env env_init env_sidecar annotation template_annotation last_applied flag flag_value shell_variable url bearer"
    " header hook probe driver log log_of_env event ending"
)
PLANTED = {name: f"planted-{name.replace('_', '-')}-9x7" for name in PLACES.split()}


TEMPLATE = """
metadata: {annotations: {example.com/note: $template_annotation}}
spec:
  containers:
  - name: tensorflow
    image: train:1
    env: [{name: DB_PASSWORD, value: $log_of_env}, {name: HARMLESS, value: $env},
      {name: FROM_SECRET, valueFrom: {secretKeyRef: {name: keys, key: token}}}]
    envFrom: [{secretRef: {name: keys}}]
    command: [sh, -c, "export API_TOKEN='$shell_variable'; train"]
    args: [--wandb-api-key=$flag, --password, $flag_value, "--data=https://user:$url@bucket.example/x", -H,
      "Authorization: Bearer $bearer", --epochs=3]
    lifecycle: {preStop: {exec: {command: [sh, -c, login --password=$hook]}}}
    readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: X-Key, value: $header}]}}
    livenessProbe: {exec: {command: [check, --token, $probe]}}
  - {name: proxy, image: proxy:1, env: [{name: A, value: $env_sidecar}]}
  initContainers: [{name: fetch, image: f:1, env: [{name: B, value: $env_init}]}]
  volumes: [{name: v, csi: {driver: x.example, volumeAttributes: {shareName: data, what: $driver}}}]
"""


def plant(world):
    """Run a cluster in which secrets are everywhere where one may be."""
    world.launch("mnist", worker={"template": yaml.safe_load(Template(TEMPLATE).substitute(PLANTED))})
    ended = {"terminated": {"exitCode": 1, "message": f"cannot log in: token={PLANTED['ending']}"}}
    about = {"kind": "Pod", "name": "mnist-worker-0", "namespace": "default"}
    words = {"message": f"pull failed: registry_password: {PLANTED['event']}", "reason": "Failed", "type": "Warning"}
    event = {"metadata": {"name": "mnist-worker-0.1", "namespace": "default"}, "involvedObject": about, **words}
    last_applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"x": PLANTED["last_applied"]})}
    written = {"example.com/owner": PLANTED["annotation"], **last_applied}

    def write():
        world.kube.patch("tfclusters", "default", "mnist", {"metadata": {"annotations": written}})
        pod = world.kube.get("pods", "default", "mnist-worker-0")
        statuses = [{**one, "lastState": ended} for one in pod["status"]["containerStatuses"]]
        change = {"status": {"containerStatuses": statuses}}
        world.kube.patch("pods", "default", "mnist-worker-0", change, subresource="status")
        world.kube.create("events", "default", event)

    world.at_once(write)
    log = f"connecting as {PLANTED['log_of_env']}\naccess_token={PLANTED['log']}\nstep 7 of 9\n"
    world.logs["mnist-worker-0"] = log


def planted_in(packed):
    everything = gzip.decompress(packed)
    return {name for name, text in PLANTED.items() if text.encode() in everything}


def test_no_secret_is_in_any_byte_of_the_archive(client_world, monkeypatch):
    """Without the redaction each secret is there, so that the test can fail."""
    plant(client_world)
    with monkeypatch.context() as without_redaction:
        without_redaction.setattr(Redaction, "text", lambda _, text: text)
        without_redaction.setattr(Redaction, "object", lambda _, body, **__: body)
        assert planted_in(reported(client_world)) == PLANTED.keys()
    packed = reported(client_world)
    assert planted_in(packed) == set()
    files = unpacked(packed)
    (pod,) = yaml.safe_load_all(files["cluster/pods.yaml"])
    main = pod["spec"]["containers"][0]
    by_name = {one["name"]: one for one in main["env"]}
    assert by_name["HARMLESS"] == {"name": "HARMLESS", "value": LEFT_OUT}
    assert by_name["FROM_SECRET"]["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "token"}}
    assert main["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert main["args"][-1] == "--epochs=3"
    assert "step 7 of 9" in files["logs/mnist-worker-0/tensorflow.log"]
    assert "managedFields" not in files["cluster/pods.yaml"]
    assert "shareName" in files["cluster/pods.yaml"]


def test_a_report_has_what_helps(client_world):
    client_world.launch("mnist", ps=1, worker=2)
    client_world.exit("mnist-worker-1", 7)
    client_world.await_that(lambda: client_world.get("pods", "mnist-worker-1-r1") is not None)
    client_world.logs["mnist-worker-1"] = "why it failed"
    packed = reported(client_world)
    files = unpacked(packed)
    objects = {f"cluster/{kind}.yaml" for kind in ("events", "pods", "services", "tfcluster", "views")}
    told = {"README.txt", "doctor.json", "doctor.txt", "gaps.txt", "status.json", "status.txt", "versions.json"}
    assert objects | told <= files.keys()
    assert files["logs/mnist-worker-1/tensorflow.log"] == "why it failed\n"
    assert json.loads(files["status.json"])["name"] == "mnist"
    assert json.loads(files["versions.json"])["server"]["gitVersion"].startswith("v1.")
    assert "The values of environment variables" in files["README.txt"]
    assert "mnist-worker-0.mnist.default" in files["cluster/views.yaml"]
    without = reported(client_world, "--no-logs")
    assert b"why it failed" not in gzip.decompress(without)
    assert not [path for path in unpacked(without) if path.startswith("logs/")]


def test_of_many_pods_the_ones_that_are_not_well_are_kept(client_world, monkeypatch):
    client_world.keep_unready("mnist-worker-3")
    client_world.declare("mnist", worker=5)
    client_world.await_that(lambda: client_world.status("mnist").get("readyTasks") == 4)
    monkeypatch.setattr(report, "MOST_PODS", 2)
    monkeypatch.setattr(report, "MOST_LOGS", 1)
    files = unpacked(reported(client_world))
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(files["cluster/pods.yaml"])]
    assert names == ["mnist-worker-0", "mnist-worker-3"]
    assert [path for path in files if path.startswith("logs/")] == ["logs/mnist-worker-3/tensorflow.log"]
    assert "pods: 2 of 5" in files["gaps.txt"]
    assert "logs: of 1 of 5 pods" in files["gaps.txt"]


def test_a_report_says_what_it_reads_what_it_cuts_and_what_it_may_not_read(client_world, monkeypatch):
    client_world.launch("mnist", worker=1)
    told = []
    with client_world.client() as client:
        files = Report(client, "mnist", logs=True, say=told.append).files([])
        assert client.api.find(PODS, "mnist-worker-0") is not None
    assert told == ["reading the cluster", "asking the doctor", "reading the operator", "reading logs"]
    assert files["doctor.txt"] == b"\n"

    monkeypatch.setattr(report, "_BYTES", 30)
    client_world.logs["mnist-worker-0"] = "x" * 500 + "\npassword=abcdefghijklmnopqrstuvwxyz\nlast line"
    files = unpacked(reported(client_world))
    log = files["logs/mnist-worker-0/tensorflow.log"]
    assert (log.endswith("last line\n"), "xyz" in log) == (True, False), "no half of a secret is left"
    assert "the last 30 of" in files["gaps.txt"]

    refuse(monkeypatch, "pods", "events", "configmaps")
    files = unpacked(reported(client_world))
    assert "pods: pods is forbidden" in files["gaps.txt"]
    assert "events: events is forbidden" in files["gaps.txt"]
    assert "cluster/tfcluster.yaml" in files


def test_the_file_is_whole_or_not_there(client_world, tmp_path):
    client_world.launch("mnist", worker=1)
    path = tmp_path / "mnist.tar.gz"
    client_world.ok("report", "mnist", "--output-file", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert "README.txt" in unpacked(path.read_bytes())
    assert list(tmp_path.glob(".*.tar.gz.*")) == []
    refused = client_world.cli("report", "mnist", "--output-file", str(tmp_path / "nowhere" / "x.tar.gz"))
    missing = client_world.cli("report", "nope", "--output-file", str(tmp_path / "x.tar.gz"))
    assert (refused.exit_code, missing.exit_code, list(tmp_path.glob("x*"))) == (1, 1, [])
    assert "cannot be written: No such file or directory" in refused.stderr


def test_the_same_files_give_the_same_archive():
    first = pack("folder", {"b": b"2", "a": b"1"}, time=1_800_000_000)
    assert first == pack("folder", {"a": b"1", "b": b"2"}, time=1_800_000_000)
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        assert archive.getnames() == ["folder/a", "folder/b"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password=hunter2 next", f"password={LEFT_OUT} next"),
        ('{"client_secret": "hunter2", "x": 1}', f'{{"client_secret": {LEFT_OUT}, "x": 1}}'),
        ("postgres://me:hunter2@db:5432/x", f"postgres://{LEFT_OUT}@db:5432/x"),
        ("Authorization: Bearer hunter2hunter2", f"Authorization: {LEFT_OUT}"),
        ("run --access-key hunter2 --steps 3", f"run --access-key {LEFT_OUT} --steps 3"),
        ("key -----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY----- end", f"key {LEFT_OUT} end"),
        ("AKIAABCDEFGHIJKLMNOP", LEFT_OUT),
        ("hf_abcdefghijklmnopqrst", LEFT_OUT),
        ("eyJhbGciOiJSUzI1.eyJzdWIiOiIx.c2ln", LEFT_OUT),
        ("Authorization: Token hunter2", f"Authorization: {LEFT_OUT}"),
        ("-H 'Authorization: ApiKey hunter2' x", f"-H 'Authorization: {LEFT_OUT}' x"),
        ('{"Authorization": "Basic aHVudGVyMg=="}', f'{{"Authorization": {LEFT_OUT}}}'),
        ('{"pass":"hunter2"}', f'{{"pass":{LEFT_OUT}}}'),
        ('{"password": "hun\\"ter2", "x": 1}', f'{{"password": {LEFT_OUT}, "x": 1}}'),
        (r'"{\"password\": \"hunter2\"}"', rf'"{{\"password\": {LEFT_OUT}}}"'),
        ("run --db-pass hunter2 -x", f"run --db-pass {LEFT_OUT} -x"),
        ("run --db-pass=hunter2 -x", f"run --db-pass={LEFT_OUT} -x"),
        ("['--key', 'hunter2']", f"['--key', {LEFT_OUT}]"),
        ("pw=hunter2 key=hunter2&a=1", f"pw={LEFT_OUT} key={LEFT_OUT}&a=1"),
        ("pw: hunter2", f"pw: {LEFT_OUT}"),
        ("DB_PASS=hunter2 db_pwd: hunter2", f"DB_PASS={LEFT_OUT} db_pwd: {LEFT_OUT}"),
        ("aws_credential=hunter2 passwd='hunter2'", f"aws_credential={LEFT_OUT} passwd={LEFT_OUT}"),
        ('password="hunter2', f"password={LEFT_OUT}"),
        ("https://me:hunt@er2@host/x", f"https://{LEFT_OUT}@host/x"),
        ("https://a.example/c?sv=1&sig=hunter2%3D&x=1", f"https://a.example/c?sv=1&sig={LEFT_OUT}&x=1"),
        ("AccountName=a;AccountKey=hunter2==;Endpoint=b", f"AccountName=a;AccountKey={LEFT_OUT};Endpoint=b"),
        ("at AIza" + "Sy0123456789abcdefghijklmnopqrstuvw.", f"at {LEFT_OUT}."),
        ("ya29.a0AfH6SMBx-0123456789", LEFT_OUT),
        ("abc8Q~0123456789abcdefghijklmnopqrstuvwx", LEFT_OUT),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", LEFT_OUT),
        # What is not secret is kept.
        ("keyboard=us --keyboard us monkey=1 key frames", "keyboard=us --keyboard us monkey=1 key frames"),
        ("step 5 passed: 3 passes=2, a first pass: 0.5", "step 5 passed: 3 passes=2, a first pass: 0.5"),
        ("tokenizer: bert; author=me; signal=9", "tokenizer: bert; author=me; signal=9"),
        ('secret "registry" not found', 'secret "registry" not found'),
        ("tokenizer=bert loss: 0.5", "tokenizer=bert loss: 0.5"),
        ("grpc://worker-0.mnist:2222 assigned=3", "grpc://worker-0.mnist:2222 assigned=3"),
        ("the author: somebody", "the author: somebody"),
    ],
)
def test_what_looks_like_a_secret_is_left_out_of_a_text(text, kept):
    assert Redaction().text(text) == kept
    assert Redaction().text(kept) == kept


#: What a hostile program could write half a megabyte of.
PIECES = ["a", "a.", "-a", " --a", "token", "token=", "://", "a://", "'", "basic ", "eyJ-", "pw:", "key ", "\\", '"\\']


@pytest.mark.parametrize("piece", [*PIECES, "--key", "a@"])
def test_no_text_takes_long_to_look_through(piece):
    """What takes the square of the length never ends."""
    assert Redaction().text(piece * (500_000 // len(piece)))


def test_values_of_secret_variables_are_known():
    """By the name of the variable; a short value could be a word."""
    values = {"API_KEY": "abcdefgh", "apiToken": "ijklmnop", "KEYBOARD": "querty", "DB_PASS": "abc"}
    env = [{"name": name, "value": value} for name, value in values.items()]
    assert secrets_in([{"spec": {"containers": [{"env": env}]}}]) == {"abcdefgh", "ijklmnop"}
