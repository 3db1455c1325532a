# An image to train in: TensorFlow for CPUs, scikit-learn for its data sets, the resolver, and the examples' programs.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY requirements/tensorflow.txt requirements/build.txt requirements/
# The wheels of TensorFlow are large: the cache keeps them between builds, and outside the image.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf,required=false \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/tfcluster && python3 -m venv /opt/build \
    && /opt/tfcluster/bin/pip install --quiet --require-hashes -r requirements/tensorflow.txt \
    && /opt/build/bin/pip install --quiet --require-hashes -r requirements/build.txt \
    && rm -rf /opt/tfcluster/lib/python3*/site-packages/tensorflow/include
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY resolver resolver
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
    && /opt/tfcluster/bin/pip install --no-cache-dir --quiet --no-deps --no-index /dist/*.whl

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="tfcluster-training" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tfcluster /opt/tfcluster
COPY examples/*.py /opt/examples/
ENV PATH=/opt/tfcluster/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=1 HOME=/tmp
USER 65532:65532
CMD ["python3", "-m", "tfcluster_resolver", "serve"]
