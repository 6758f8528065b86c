# vLLM's image with Pagoda's client, for engines/vllm.yaml. From the repository's root, after
# deploy/wheel.sh:
#   docker build -f deploy/kubernetes/engines/vllm.Dockerfile -t vllm-pagoda:0.1.0 build/wheels
# No test builds this image, because it has gigabytes. The connector is tested in a vLLM of this
# version that was built for CPUs. The image needs only `pagoda`, which is pure Python and works
# with any glibc. The package of that name on PyPI is another project's.
FROM vllm/vllm-openai:v0.32.0
COPY pagoda-0.1.0-py3-none-any.whl /tmp/
RUN python3 -m pip install --no-cache-dir /tmp/pagoda-0.1.0-py3-none-any.whl && python3 -c "import pagoda"
