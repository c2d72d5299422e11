# vLLM's image with the hooks in it, instead of the init container: where the image is yours and rebuilt anyway.
#
#   docker build -f deploy/container/vllm.Dockerfile --build-arg VLLM_IMAGE=vllm/vllm-openai@sha256:... dist/wheelhouse
ARG VLLM_IMAGE=docker.io/vllm/vllm-openai:v0.11.0
FROM ${VLLM_IMAGE}
COPY kvtide-*.whl /tmp/
# msgspec, the only dependency, is vLLM's own.
RUN python3 -m pip install --no-cache-dir --no-index --no-deps /tmp/kvtide-*.whl
