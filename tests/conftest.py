"""A server of S3, for whoever asks for it."""

from __future__ import annotations

import uuid

import pytest


@pytest.fixture(scope="module")
def s3_options():
    moto_server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        yield {"endpoint_url": f"http://{host}:{port}"}
        server.stop()


@pytest.fixture
def bucket(s3_options) -> str:
    import s3fs

    name = f"test-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem(**s3_options).mkdir(name)
    return f"s3://{name}"
