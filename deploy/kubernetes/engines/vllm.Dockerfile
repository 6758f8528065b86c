# vLLM's image with Pagoda's client, for engines/vllm.yaml. From the repository's root, after deploy/wheel.sh:
#   docker build -f deploy/kubernetes/engines/vllm.Dockerfile -t vllm-pagoda:0.1.0 build/wheels
# Not built by any test: it has gigabytes, and the connector is tested in a vLLM of this version that was built for CPUs. `pagoda` alone is
# needed here. It is Python without compiled parts, so it does not mind the image's glibc. The name on PyPI is another project's.
FROM vllm/vllm-openai:v0.32.0
COPY pagoda-0.1.0-py3-none-any.whl /tmp/
RUN python3 -m pip install --no-cache-dir /tmp/pagoda-0.1.0-py3-none-any.whl && python3 -c "import pagoda"
