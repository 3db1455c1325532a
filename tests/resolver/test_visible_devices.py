"""The accelerators of a container: the plugin's variable, CUDA's, the device files, TensorFlow."""

import sys
from types import SimpleNamespace

import pytest

from tfcluster_resolver.accelerators import visible_accelerators

PLUGIN, CUDA = "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
RENDER = ("dri/renderD128", "dri/renderD129", "dri/card0")


@pytest.fixture
def see(tmp_path, monkeypatch):
    """Counts the devices of a container on Linux with these device files and variables."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    def count(*files: str, **variables: str) -> dict[str, int] | None:
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return visible_accelerators(environ=variables, devices=tmp_path)

    return count


def gpus(count: int) -> dict[str, int]:
    return {"GPU": count} if count else {}


#: The plugin's list, the number of files, and the number of GPUs.
LISTED = {("GPU-0,GPU-1", 0): 2, ("GPU-0,GPU-0", 0): 1, ("0,3", 4): 2, ("MIG-a,MIG-b,MIG-c", 1): 3, ("GPU-0,", 0): 1}
NOT_LISTED = {("all", 3): 3, ("void", 2): 2, ("none", 0): 0, ("", 4): 4, (None, 4): 4, (None, 0): 0}


@pytest.mark.parametrize(("given", "count"), (LISTED | NOT_LISTED).items())
def test_plugins_list_goes_before_the_files(see, given, count):
    """The device plugin's list has priority; if it is empty, the files in /dev count."""
    listed, files = given
    variables = {} if listed is None else {PLUGIN: listed}
    assert see(*(f"nvidia{n}" for n in range(files)), "nvidiactl", "nvidia-uvm", **variables) == gpus(count)


def test_plugin_that_mounts_files_is_understood(see, tmp_path):
    """With its strategy "volume-mounts" the plugin names a folder that has a file for each device."""
    assert see("listed/GPU-a", "listed/GPU-b", **{PLUGIN: str(tmp_path / "listed")}) == {"GPU": 2}


SHOWN_BY_CUDA = {"0": 1, "0,2": 2, "2,0,1": 3, "0,3,1": 1, "-1": 0, "": 0, "NoDevFiles": 0, "1,-1,2": 1, "0,0,1": 1}
SHOWN_BY_NAME = {"GPU-a,GPU-b": 2, "GPU-a,GPU-b,GPU-c,GPU-d": 3, " 0 , 1 ": 2}


@pytest.mark.parametrize(("shown", "count"), (SHOWN_BY_CUDA | SHOWN_BY_NAME).items())
def test_cuda_hides_what_it_does_not_name(see, shown, count):
    assert see("nvidia0", "nvidia1", "nvidia2", **{CUDA: shown}) == gpus(count)


@pytest.mark.parametrize(
    ("files", "variables", "counts"),
    [
        ((), {PLUGIN: "GPU-0000,GPU-0001", CUDA: "1"}, {"GPU": 1}),
        ((), {PLUGIN: "GPU-0000,GPU-0001", CUDA: "2"}, {}),
        (RENDER, {CUDA: "-1"}, {"GPU": 2}),
        (("nvidia0", *RENDER), {}, {"GPU": 1}),
        (("nvidia0", *RENDER), {CUDA: "-1"}, {}),
        (RENDER, {PLUGIN: "GPU-0000"}, {"GPU": 1}),
        (("accel0", "accel1"), {}, {"TPU": 2}),
        (("vfio/0", "vfio/1", "vfio/vfio"), {}, {"TPU": 2}),
        *(((), {CUDA: rubbish}, {}) for rubbish in ("9" * 5000, "٣,\0")),
        *(((), {PLUGIN: rubbish}, {}) for rubbish in ("/\0", "/\ud800", ",")),
    ],
)
def test_files_and_variables_are_counted_together(see, files, variables, counts):
    """CUDA's variable is NVIDIA's alone; AMD's and Intel's have a render file each, NVIDIA's some for graphics."""
    assert see(*files, **variables) == counts


def test_nothing_is_known_outside_of_linux(see, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert see(**{PLUGIN: "GPU-0"}) is None


def tensorflow_with(count: int) -> SimpleNamespace:
    """Build a fake TensorFlow: a build for GPUs cannot run on the test machines."""
    return SimpleNamespace(config=SimpleNamespace(get_visible_devices=lambda kind: [kind] * count))


@pytest.mark.parametrize(
    ("tensorflow", "counts"),
    [(tensorflow_with(1), {"GPU": 1}), (tensorflow_with(0), {}), (SimpleNamespace(), {"GPU": 2})],
    ids=["a GPU", "a build for none", "half imported"],
)
def test_tensorflow_that_is_loaded_knows_best(see, monkeypatch, tensorflow, counts):
    """An imported TensorFlow has priority over variables and files; during its import it does not have devices."""
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    assert see("nvidia0", "nvidia1", **{PLUGIN: "GPU-0000,GPU-0001"}) == counts


@pytest.mark.parametrize("file", ["dxg", "nvmap"])
def test_gpus_without_files_of_their_own_cannot_be_counted(see, monkeypatch, file):
    """In WSL and on Jetson one file represents all GPUs: the count is unknown until TensorFlow is loaded."""
    assert see(file) is None
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow_with(1))
    assert see(file) == {"GPU": 1}
