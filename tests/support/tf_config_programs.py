"""Programs written for TFJob, as texts of modules: the leading task prints ``done``, parameter servers never exit."""

from typing import Final

#: Parameter servers of TensorFlow 1, without Estimator: one server per task, between-graph replication.
GRAPH: Final = """
import json
import os

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=kind, task_index=index)
print(f"{kind} {index} serves", flush=True)
if kind == "ps":
    server.join()

leads = kind in ("chief", "master") or not {"chief", "master"} & set(cluster.jobs) and index == 0
with tf.device(tf.train.replica_device_setter(worker_device=f"/job:{kind}/task:{index}", cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.square(weight - 3.0)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=50)]
with tf.train.MonitoredTrainingSession(server.target, is_chief=leads, hooks=hooks) as session:
    while not session.should_stop():
        _, error = session.run([train, loss])
print(f"{kind} {index} of {cluster.num_tasks('worker')} workers, {len(cluster.jobs)} jobs, loss {error:.4f}")
print("done", flush=True)
"""

#: Equal workers that train one Keras model synchronously.
MIRRORED: Final = """
import json
import os

import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)

features = tf.random.stateless_normal((32, 4), seed=(1, 2))
dataset = tf.data.Dataset.from_tensor_slices((features, tf.reduce_sum(features, axis=1, keepdims=True)))
batches = iter(strategy.experimental_distribute_dataset(dataset.repeat().batch(8)))

def replica_step(inputs):
    x, wanted = inputs
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - wanted))
    gradients = tape.gradient(loss, model.trainable_variables)
    context = tf.distribute.get_replica_context()
    for variable, gradient in zip(model.trainable_variables, context.all_reduce("MEAN", gradients)):
        variable.assign_sub(0.1 * gradient)
    return loss

@tf.function
def step():
    return strategy.reduce("MEAN", strategy.run(replica_step, args=(next(batches),)), axis=None)

for _ in range(60):
    loss = step()
print(f"worker {task['index']} of {strategy.num_replicas_in_sync}, loss {float(loss):.4f}")
print("done", flush=True)
"""

#: Parameter servers of TensorFlow 2: one coordinator, servers, and an evaluator.
COORDINATED: Final = """
import sys

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
spec = resolver.cluster_spec()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(spec, resolver.task_type, resolver.task_id, protocol=resolver.rpc_layer or "grpc")
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()
if resolver.task_type == "evaluator":
    print(f"evaluator of {sorted(spec.jobs)}")
    print("done", flush=True)
    sys.exit()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = [tf.Variable(0.0), tf.Variable(1.0)]

@tf.function
def step():
    for weight in weights:
        weight.assign_sub(0.2 * (weight - 3.0))

for _ in range(40):
    coordinator.schedule(step)
coordinator.join()
places = [weight.device.partition("/task:")[2][0] for weight in weights]
value = sum(weight.numpy() for weight in weights) / 2
print(f"chief of {spec.num_tasks('worker')} workers and {spec.num_tasks('ps')} ps, {sorted(spec.jobs)}")
print(f"weight {value:.2f}, kept by ps {' and '.join(places)}")
print("done", flush=True)
"""
