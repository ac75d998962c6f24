# queuectl: controller, REST and sandbox in one image. Non-root, no shell needed, nothing written outside /data.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY queuectl queuectl
COPY migrations migrations
COPY manifests manifests
RUN python -m venv /opt/queuectl \
 && /opt/queuectl/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/queuectl/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/queuectl /opt/queuectl
RUN useradd --uid 10001 --no-create-home queuectl && install -d -o 10001 -g 10001 /data
ENV PATH=/opt/queuectl/bin:$PATH QUEUECTL_DATA=/data PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /data
ENTRYPOINT ["queuectl"]
CMD ["controller"]
