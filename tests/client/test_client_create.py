"""`tfcluster create`: what it makes is valid, runs, and is what was asked for."""

import json
from collections import Counter

import pytest
import yaml
from click.testing import CliRunner
from support.odd_texts import ODD_TEXTS, readings

from tfcluster.commands.root import root
from tfcluster.kube.api import CONFIG_MAPS, PODS
from tfcluster.manifest import recipes
from tfcluster.manifest.files import read
from tfcluster.manifest.validate import declare

IMAGE = ("--image", "train:1")
COMMAND = ("--", "python3", "/opt/train.py")


def run(*arguments: str):
    return CliRunner().invoke(root, ["create", *arguments])


def made(*arguments: str):
    shown = run("digits", *IMAGE, *arguments)
    assert shown.exit_code == 0, shown.output
    (cluster,) = (one for one in yaml.safe_load_all(shown.stdout) if one["kind"] == "TFCluster")
    return cluster


def config_maps(pod):
    return [one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one]


def container(cluster, job):
    return cluster["spec"]["jobs"][job]["template"]["spec"]["containers"][0]


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "train.py"
    file.write_text('import os\n\nprint("a: b #", os.environ)\t\n')
    return file


TOPOLOGIES = {
    "parameter servers": (("--ps", "2", "--workers", "4"), {"chief": 1, "worker": 4, "ps": 2}),
    "equal workers": (("--workers", "2", "--gpus", "2", "--max-workers", "8"), {"worker": 2}),
}


@pytest.mark.parametrize("case", TOPOLOGIES)
def test_each_topology_runs(client_world, script, case):
    flags, tasks = TOPOLOGIES[case]
    client_world.at_once(lambda: setattr(client_world.nodes, "hurried", True))
    applied = client_world.ok("create", "digits", *IMAGE, *flags, "--script", str(script), "--apply")
    assert "tfcluster status digits" in applied.stderr
    client_world.await_condition("digits", "Ready")
    with client_world.client() as client:
        pods = list(client.api.list(PODS))
        assert Counter(one["metadata"]["labels"]["tfcluster.dev/job"] for one in pods) == tasks
        program = client.api.get(CONFIG_MAPS, program_of(client))
        assert program["data"] == {"train.py": script.read_text()}
        mounted = {name for one in pods for name in config_maps(one) if "-program-" in name}
        assert mounted == {program_of(client)}
        client.delete("digits")
        client_world.await_that(lambda: client.api.find(CONFIG_MAPS, program["metadata"]["name"]) is None)


def program_of(client):
    (name,) = (name for one in client.api.list(CONFIG_MAPS) if "-program-" in (name := one["metadata"]["name"]))
    return name


def test_existing_cluster_is_not_changed(client_world):
    client_world.ok("create", "digits", *IMAGE, "--apply", *COMMAND)
    again = client_world.cli("create", "digits", *IMAGE, "--workers", "5", "--apply", *COMMAND)
    assert (again.exit_code, "already exists" in again.stderr) == (1, True)
    assert client_world.cluster("digits")["spec"]["jobs"]["worker"]["replicas"] == 1


def test_chief_drives_and_filters_keep_workers_apart():
    cluster = made("--ps", "1", "--workers", "2", *COMMAND)
    jobs = cluster["spec"]["jobs"]
    assert container(cluster, "chief")["command"] == ["python3", "/opt/train.py"]
    assert "command" not in container(cluster, "worker")
    assert "command" not in container(cluster, "ps")
    assert jobs["worker"]["deviceFilters"] == ["/job:ps", "/job:chief"]
    assert jobs["ps"]["deviceFilters"] == ["/job:worker", "/job:chief"]
    assert not any("restartScope" in job for job in jobs.values())


def test_equal_workers_start_again_together():
    worker = made("--workers", "2", *COMMAND)["spec"]["jobs"]["worker"]
    assert (worker["restartScope"], "deviceFilters" in worker) == ("Cluster", False)


def test_each_option_is_in_the_manifest():
    options = ("--cpu", "2", "--memory", "3Gi", "--gpus", "2", "--gpu-resource", "amd.com/gpu")
    more = ("--env", "A=b=c", "--env", "EMPTY=", "--data", "claim:/data", "--pvc", "other:/ro:ro", "-n", "team")
    cluster = made("--ps", "1", "--max-workers", "7", *options, *more, *COMMAND)
    spec = cluster["spec"]
    assert cluster["metadata"]["namespace"] == "team"
    assert spec["jobs"]["worker"]["maxReplicas"] == 7
    for job in ("chief", "worker", "ps"):
        one = container(cluster, job)
        limits = {"memory": "3Gi", **({"amd.com/gpu": 2} if job == "worker" else {})}
        assert one["resources"] == {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": limits}
        assert one["image"] == "train:1"
        assert one["env"] == [{"name": "A", "value": "b=c"}, {"name": "EMPTY", "value": ""}]
        assert [mount["mountPath"] for mount in one["volumeMounts"]] == ["/data", "/ro"]
    claims = [one["persistentVolumeClaim"] for one in spec["jobs"]["ps"]["template"]["spec"]["volumes"]]
    assert claims == [{"claimName": "claim"}, {"claimName": "other", "readOnly": True}]


def test_script_is_printed_as_it_is(script):
    shown = run("digits", *IMAGE, "--script", str(script), "--", "--epochs", "5")
    cluster, program = yaml.safe_load_all(shown.stdout)
    assert program["data"] == {"train.py": script.read_text()}
    name = program["metadata"]["name"]
    assert config_maps({"spec": cluster["spec"]["jobs"]["worker"]["template"]["spec"]}) == [name]
    assert container(cluster, "worker")["command"] == ["python3", "/opt/program/train.py", "--epochs", "5"]
    script.write_text("print(2)\n")
    assert name not in run("digits", *IMAGE, "--script", str(script)).stdout
    assert "    print(2)\n" in run("digits", *IMAGE, "--script", str(script)).stdout
    shell = script.with_name("go.sh")
    shell.write_text("true\n")
    assert container(made("--script", str(shell)), "worker")["command"] == ["sh", "/opt/program/go.sh"]


def test_json_is_what_the_yaml_says(script):
    plain = run("digits", *IMAGE, "-o", "json", *COMMAND)
    both = run("digits", *IMAGE, "-o", "json", "--script", str(script))
    assert json.loads(plain.stdout) == made(*COMMAND)
    assert [one["kind"] for one in json.loads(both.stdout)["items"]] == ["ConfigMap", "TFCluster"]
    file = script.with_name("cluster.yaml")
    file.write_text(run("digits", *IMAGE, "--ps", "1", "--script", str(script)).stdout)
    assert declare(read([file]).only(), "default").name == "digits"


@pytest.mark.parametrize("file", ["y", "1e3", "0o7"])
def test_texts_stay_texts(tmp_path, file):
    (tmp_path / file).write_text("print()\n")
    told = [*ODD_TEXTS, "a" * 200 + " " + "b" * 200]
    env = [word for index, text in enumerate(told) for word in ("--env", f"V{index}={text}")]
    shown = run("y", "--image", "i", "--script", str(tmp_path / file), *env, "--", *told).stdout
    for cluster, program in readings(shown):
        one = container(cluster, "worker")
        assert [cluster["metadata"]["name"], program["data"]] == ["y", {file: "print()\n"}]
        assert [variable["value"] for variable in one["env"]] == told
        assert one["command"][2:] == told


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "say what it runs"),
        (("-n", "my team", *COMMAND), '"my team" cannot name a namespace'),
        (("--workers", "0", *COMMAND), "no worker"),
        (("--workers", "3", "--max-workers", "2", *COMMAND), "--max-workers 2 is below --workers 3"),
        (("--data", "a:/x", "--data", "b:/x", *COMMAND), "two volumes at /x"),
        (("--env", "TFCLUSTER_JOB=x", *COMMAND), "TFCLUSTER_JOB"),
        (("--data", "a:/etc/tfcluster", *COMMAND), "/etc/tfcluster"),
        (("--cpu", "much", *COMMAND), '"much" is not a quantity'),
        (("--workers", "10001", *COMMAND), "10000"),
    ],
)
def test_invalid_flags_are_rejected_with_a_message(flags, words):
    shown = run("digits", *IMAGE, *flags)
    assert (shown.exit_code, shown.stdout, words in shown.stderr) == (1, "", True)


@pytest.mark.parametrize("flag", ["--env=x", "--env==x", "--data=claim", "--data=c:x", "--data=c:/x:rw", "--ps=-1"])
def test_what_is_spelt_wrong_is_a_wrong_command_line(flag):
    assert run("digits", *IMAGE, flag, *COMMAND).exit_code == 2


def test_invalid_name_and_script_are_rejected(tmp_path):
    assert "the command line: metadata.name" in run("My_Cluster", *IMAGE, *COMMAND).stderr
    (tmp_path / "large.py").write_text("#" * (recipes.LARGEST_PROGRAM + 1))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    large = run("digits", *IMAGE, "--script", str(tmp_path / "large.py"))
    binary = run("digits", *IMAGE, "--script", str(tmp_path / "binary.py"))
    assert (large.exit_code, binary.exit_code) == (1, 2)
    assert "1,000,001 bytes" in large.stderr
    assert "not UTF-8 text" in binary.stderr
