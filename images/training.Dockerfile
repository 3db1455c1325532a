# An image to train in: TensorFlow for CPUs, scikit-learn for its data sets, and the examples' programs.
# The resolver is not in it: the operator delivers it into the pods.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY requirements/tensorflow.txt requirements/
# The wheels of TensorFlow are large: the cache keeps them between builds, and outside the image.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf,required=false \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/tensorflow \
    && /opt/tensorflow/bin/pip install --quiet --require-hashes -r requirements/tensorflow.txt \
    && rm -rf /opt/tensorflow/lib/python3*/site-packages/tensorflow/include

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="tfcluster-training" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tensorflow /opt/tensorflow
COPY examples/*.py /opt/examples/
ENV PATH=/opt/tensorflow/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=1 HOME=/tmp
USER 65532:65532
