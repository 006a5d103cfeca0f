# soak, and its backends: the same image runs 'soak' and, by another entrypoint, 'python3 -m soak.lab.origin'.
#   docker build -t soakd .
# The base is any image with Python 3.11 or newer and its venv. Without a network, from wheels in ./wheelhouse
# (pip wheel -w wheelhouse -c constraints.txt . setuptools wheel):
#   docker build -t soakd --network none --build-arg PIP_ARGS="--no-index --find-links=wheelhouse" .
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
ARG PIP_ARGS=""
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY constraints.txt wheelhouse* wheelhouse/
COPY soak soak
COPY chaos chaos
COPY certs certs
RUN python3 -m venv /opt/soak \
 && /opt/soak/bin/python3 -m pip install --no-cache-dir --disable-pip-version-check ${PIP_ARGS} \
      --constraint wheelhouse/constraints.txt .

FROM ${BASE}
# A number, not a name: it owns the volumes, and the proxy runs under it too, so that both may read keys of mode 0600.
ARG SOAK_UID=10001
COPY --from=build /opt/soak /opt/soak
RUN mkdir -p /soak/proxy /counters /var/lib/soak \
 && chown -R ${SOAK_UID}:${SOAK_UID} /soak /counters /var/lib/soak
ENV PATH=/opt/soak/bin:$PATH SOAK_HOME=/var/lib/soak HOME=/var/lib/soak
USER ${SOAK_UID}:${SOAK_UID}
WORKDIR /var/lib/soak
ENTRYPOINT ["soak"]
CMD ["--help"]
