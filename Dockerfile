# The image of the operator; the resolver is in it too, so any pod that runs it can `import tfcluster_resolver`.
# BASE_IMAGE is any image with Python 3.11 or newer as python3, and with its venv module.
ARG BASE_IMAGE=docker.io/library/python:3.11-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY requirements/operator.txt requirements/build.txt requirements/
# Where pip needs a trust store or a configuration of the machine, the build lends them as secrets: nothing is kept.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf,required=false \
    --mount=type=secret,id=ca.crt,target=/etc/ssl/certs/ca-certificates.crt,required=false \
    python3 -m venv /opt/tfcluster && python3 -m venv /opt/build \
    && /opt/tfcluster/bin/pip install --no-cache-dir --no-compile --quiet --require-hashes -r requirements/operator.txt \
    && /opt/build/bin/pip install --no-cache-dir --quiet --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
# The client is no part of the image, nor are its scripts.
COPY operator operator
COPY resolver resolver
# Compiled once, at the end, without a time in it and in one order: the same sources make the same files.
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
    && /opt/tfcluster/bin/pip install --no-cache-dir --no-compile --quiet --no-deps --no-index /dist/*.whl \
    && /opt/tfcluster/bin/python3 -m pip uninstall --quiet --yes setuptools pip \
    && rm /opt/tfcluster/bin/tfcluster /opt/tfcluster/bin/kubectl-tfcluster /opt/tfcluster/bin/kubectl_complete-tfcluster \
    && find /opt/tfcluster -name __pycache__ -prune -exec rm -rf {} + \
    && PYTHONHASHSEED=0 /opt/tfcluster/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/tfcluster

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="tfcluster-operator" \
      org.opencontainers.image.description="TensorFlow clusters on Kubernetes: the operator and the resolver" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tfcluster /opt/tfcluster
ENV PATH=/opt/tfcluster/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "tfcluster_operator"]
