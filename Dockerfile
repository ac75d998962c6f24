# queuectl: controller, REST and webhook in one image, from the versions in requirements-runtime.lock. It runs as any
# unprivileged user, with a read-only root; it writes only to /tmp (and to /data in the target `sandbox`).
#
#   docker build -t ghcr.io/queuectl/queuectl:0.1.0 .
#   docker build --target sandbox -t queuectl-sandbox:0.1.0 .
ARG PYTHON=3.13-slim-bookworm

FROM docker.io/library/python:${PYTHON} AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY queuectl queuectl
COPY migrations migrations
COPY manifests manifests
RUN python -m hatchling build -t wheel -d /dist

FROM docker.io/library/python:${PYTHON} AS environment
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements-runtime.lock /
RUN python -m venv --without-pip /opt/queuectl \
 && pip --python /opt/queuectl/bin/python install --require-hashes --only-binary=:all: -r /requirements-runtime.lock
COPY --from=wheel /dist/*.whl /dist/
RUN pip --python /opt/queuectl/bin/python install --no-deps --no-index /dist/*.whl \
 && /opt/queuectl/bin/python -m compileall -q /opt/queuectl/lib

FROM environment AS sandbox-environment
COPY requirements-sandbox.lock /
RUN pip --python /opt/queuectl/bin/python install --require-hashes --only-binary=:all: -r /requirements-sandbox.lock

FROM docker.io/library/python:${PYTHON} AS base
# The program needs only the interpreter and its libraries from the base image: no pip, no caches.
RUN python -m pip uninstall --yes pip \
 && rm -rf /root/.cache /usr/local/lib/python3.*/ensurepip \
 && groupadd --gid 10001 queuectl \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin queuectl
ENV PATH=/opt/queuectl/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
ENTRYPOINT ["queuectl"]
CMD ["--help"]
LABEL org.opencontainers.image.title="queuectl" \
      org.opencontainers.image.description="Admission and fair-share queue controller for GPU work on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

# All components in one container, for evaluation: with an embedded Postgres and a small Kubernetes API.
FROM base AS sandbox
COPY --from=sandbox-environment /opt/queuectl /opt/queuectl
RUN install -d -o 10001 -g 10001 -m 0700 /data
ENV QUEUECTL_DATA=/data
VOLUME /data
USER 10001:10001
CMD ["sandbox", "--headless"]

# A build without --target builds this last stage.
FROM base
COPY --from=environment /opt/queuectl /opt/queuectl
USER 10001:10001
