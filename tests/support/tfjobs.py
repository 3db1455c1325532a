"""TFJobs as users write them: every version of the API, every role, and their errors."""

from typing import Final

_CONTAINER: Final = "{name: tensorflow, image: 'registry.example/train:1', command: [python, train.py]}"

#: By their special feature.
TFJOBS: Final = {
    "all roles": f"""\
# The nightly training of the ranking model.
apiVersion: kubeflow.org/v1   # of the training operator
kind: TFJob
metadata:
  name: ranking
  namespace: ml
  labels: {{team: search}}
  annotations:
    # for the invoice
    example.com/cost-centre: "0042"
spec:
  runPolicy:
    # keep the logs
    cleanPodPolicy: Running
    ttlSecondsAfterFinished: 86400  # a day
    activeDeadlineSeconds: 43200
    backoffLimit: 6
    suspend: false
  tfReplicaSpecs:
    Chief:
      replicas: 1
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{_CONTAINER}]}}}}
    PS:
      replicas: 2
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{_CONTAINER}]}}}}
    Worker:
      replicas: 4
      restartPolicy: ExitCode
      template: {{spec: {{containers: [{_CONTAINER}]}}}}
    Evaluator:
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{_CONTAINER}]}}}}
""",
    "equal workers": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mirrored}
spec:
  runPolicy: {cleanPodPolicy: None}
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: tensorflow
              image: registry.example/mirrored:1
              resources: {limits: {nvidia.com/gpu: 1}}
""",
    "v1beta2": """\
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata:
  generateName: digits-
spec:
  cleanPodPolicy: All
  backoffLimit: 2
  activeDeadlineSeconds: 600
  tfReplicaSpecs:
    Chief:
      replicas: 1
      template:
        metadata:
          creationTimestamp: null
        spec:
          containers:
          - name: tensorflow
            workingDir: /opt
            command: [/usr/bin/python, /opt/model.py, "--steps=$(trainSteps)"]
            env:
            - {name: trainSteps, value: "200"}
            image: training-image
          restartPolicy: OnFailure
    Ps:
      replicas: 1
      template:
        spec:
          containers:
          - {name: tensorflow, image: training-image, command: [/usr/bin/python, /opt/model.py]}
          restartPolicy: OnFailure
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: tensorflow, image: training-image, command: [/usr/bin/python, /opt/model.py]}
          restartPolicy: OnFailure
""",
    "dynamic workers": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: elastic}
spec:
  enableDynamicWorker: true
  tfReplicaSpecs:
    Chief: &replica
      template: {spec: {containers: [{name: tensorflow, image: i, command: [run]}]}}
    PS:
      <<: *replica
      replicas: 3
      restartPolicy: OnFailure
    Worker:
      <<: *replica
      replicas: 5
    Evaluator: *replica
""",
    "a gang": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: gang
  labels: {kueue.x-k8s.io/queue-name: team}
  finalizers: [example.com/accounting]
spec:
  runPolicy:
    managedBy: kueue.x-k8s.io/multikueue
    suspend: true
    schedulingPolicy:
      minAvailable: 3
      queue: fast   # the express lane
      minResources: {cpu: "3", nvidia.com/gpu: 2}
      priorityClass: high
      scheduleTimeoutSeconds: 60
  tfReplicaSpecs:
    Worker:
      replicas: 3
      template:
        metadata: {annotations: {scheduling.k8s.io/group-name: gang}}
        spec: {schedulerName: volcano, containers: [{name: tensorflow, image: i}]}
""",
    "ports": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: ports}
spec:
  tfReplicaSpecs:
    Chief:
      template:
        spec:
          containers:
            - {name: sidecar, image: s, ports: [{name: tfjob-port, containerPort: 7}]}
            - name: tensorflow
              image: i
              ports: [{name: metrics, containerPort: 8000}, {name: tfjob-port, containerPort: 5000}]
    Worker:
      template: {spec: {containers: [{name: tensorflow, image: i}]}}
    PS:
      template: {spec: {containers: [{name: tensorflow, image: i, ports: [{name: tfjob-port, containerPort: 5001}]}]}}
""",
    "what the operator sets": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: taken}
spec:
  tfReplicaSpecs:
    Chief:
      restartPolicy: OnFailure
      template:
        metadata:
          name: ignored
          labels: {app.kubernetes.io/name: taken, app: taken, tfcluster.dev/job: x}
          annotations: {sidecar.istio.io/inject: "false"}
        spec:
          hostname: taken
          subdomain: training
          affinity:
            podAntiAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                - topologyKey: kubernetes.io/hostname
                  labelSelector: {matchLabels: {training.kubeflow.org/job-name: taken}}
          volumes:
            - {name: scratch, emptyDir: {}}
            - {name: shm, emptyDir: {medium: Memory}}
            - {name: data, hostPath: {path: /data}}
            - {name: cache, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}
          containers:
            - name: tensorflow
              image: i
              env:
                - {name: TF_CONFIG, value: '{}'}
                # where the first ps is
                - {name: PS, value: "taken-ps-0.default.svc:2222"}
    PS:
      template: {spec: {containers: [{name: tensorflow, image: i}]}}
""",
    "fields out of place": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: misplaced, owner: me}
spec:
  cleanPodPolicy: Running
  backOffLimit: 3
  runPolicy: {maxRestarts: 2}
  tfReplicaSpecs:
    Worker:
      replica: 2
      template:
        labels: {a: b}
        spec: {containers: [{name: tensorflow, image: i, comand: [x]}]}
""",
    "JSON": """\
{
\t"apiVersion": "kubeflow.org/v1", "kind": "TFJob",
\t"metadata": {"name": "json", "annotations": {"a": "yes", "b": "0644", "c": "1e3", "d": "null", "e": "- x: y"}},
\t"spec": {"tfReplicaSpecs": {"Chief": {"template": {"spec": {"containers": [
\t\t{"name": "tensorflow", "image": "i", "command": ["sh", "-c", "a\\nb: c # d\\n"]}]}}},
\t\t"Worker": {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}}}
}
""",
    "as kubectl gets it": """\
apiVersion: v1
items:
- apiVersion: kubeflow.org/v1
  kind: TFJob
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"kubeflow.org/v1","kind":"TFJob"}
    creationTimestamp: "2024-01-01T00:00:00Z"
    generation: 1
    managedFields:
    - {apiVersion: kubeflow.org/v1, fieldsType: FieldsV1, manager: kubectl}
    name: live
    namespace: training
    resourceVersion: "123"
    uid: 5f0c8a52
  spec:
    runPolicy: {cleanPodPolicy: Running, suspend: false}
    successPolicy: ""
    tfReplicaSpecs:
      Worker:
        replicas: 1
        restartPolicy: Never
        template:
          metadata:
            creationTimestamp: null
          spec:
            containers:
            - image: i
              name: tensorflow
              ports:
              - {containerPort: 2222, name: tfjob-port, protocol: TCP}
              resources: {}
  status:
    conditions: []
    replicaStatuses: {Worker: {succeeded: 1}}
    startTime: "2024-01-01T00:00:00Z"
kind: List
metadata:
  resourceVersion: ""
""",
    "nulls": """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: nulls, labels: null, annotations: ~}
spec:
  successPolicy: AllWorkers
  runPolicy: {cleanPodPolicy: null, backoffLimit: null, schedulingPolicy: null}
  tfReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: null
      template:
        metadata: null
        spec:
          nodeSelector: null
          containers: [{name: tensorflow, image: i, env: null, ports: null, resources: null}]
          volumes: null
""",
}


#: The TFJobs that lose something: the conversion exits with 3, and with 0 for the others.
LOSSY: Final = {
    "all roles",
    "equal workers",
    "dynamic workers",
    "a gang",
    "what the operator sets",
    "fields out of place",
}


def _refused(workers: str, spec: str = "", *, name: str = "x", version: str = "v1") -> str:
    """Build a TFJob with these workers and these other fields of its spec."""
    metadata = f"apiVersion: kubeflow.org/{version}\nkind: TFJob\nmetadata: {{name: {name}}}\n"
    return f"{metadata}spec: {{{spec} tfReplicaSpecs: {{{workers}}}}}\n"


_TEMPLATE: Final = "template: {spec: {containers: [{name: tensorflow, image: i}]}}"


def _worker(spec: str = "", container: str = "") -> str:
    return f"Worker: {{template: {{spec: {{{spec} containers: [{{name: tensorflow, image: i, {container}}}]}}}}}}"


_OWN_FOLDER: Final = _worker(
    "volumes: [{name: tfcluster-view, emptyDir: {}}],",
    "env: [{name: TFCLUSTER_JOB, value: x}], volumeMounts: [{name: tfcluster-view, mountPath: /etc/tfcluster}]",
)
_HALF: Final = "resources: {limits: {nvidia.com/gpu: 0.5}}"
_NUMBERS: Final = "runPolicy: {activeDeadlineSeconds: 0, backoffLimit: -1, ttlSecondsAfterFinished: 1h},"

#: Rejected TFJobs, by reason; with words of the message.
REFUSED: Final = {
    "a part of a device": (
        _refused(_worker(f"initContainers: [{{name: x, image: i, {_HALF}}}],", _HALF)),
        "a device is granted whole",
    ),
    "an older version": (_refused(_worker(), version="v1alpha1"), "is none of kubeflow.org/v1,"),
    "nothing in a type": (_refused("Worker: null"), "it is empty"),
    "a type twice": (_refused(f"{_worker()}, WORKER: {{{_TEMPLATE}}}"), "it is Worker once more"),
    "chief and master": (_refused(f"Chief: {{{_TEMPLATE}}}, Master: {{{_TEMPLATE}}}"), "both Chief and Master"),
    "a long name": (_refused(f"Worker: {{replicas: 11, {_TEMPLATE}}}", name="a" * 61), "shorten metadata.name"),
    "a name with dots": (_refused(_worker(), name="7.digits"), '"7.digits" cannot name a Service'),
    "the node's network": (_refused(_worker("hostNetwork: true,")), "take each other's ports"),
    "a policy that is none": (
        _refused(f"Worker: {{restartPolicy: OnError, {_TEMPLATE}}}", "runPolicy: {cleanPodPolicy: Never},"),
        "is none of OnFailure, Always, Never, ExitCode",
    ),
    "numbers that are none": (_refused(f"Worker: {{replicas: -1, {_TEMPLATE}}}", _NUMBERS), "write 1 at least"),
    "no container": (_refused("Worker: {template: {spec: {containers: []}}}"), "write 1 at least"),
    "containers that are none": (
        _refused("Worker: {template: {spec: {containers: {name: tensorflow}, volumes: x}}}"),
        "this must be a list",
    ),
    "a field of the wrong type": (_refused(_worker(container="env: {A: b}")), "this must be a list, and is"),
    "our own folder": (_refused(_OWN_FOLDER), "mount yours elsewhere"),
    "a master that never ends": (
        _refused(f"Master: {{restartPolicy: Always, {_TEMPLATE}}}, Worker: {{{_TEMPLATE}}}"),
        "set restartPolicy: OnFailure",
    ),
}
