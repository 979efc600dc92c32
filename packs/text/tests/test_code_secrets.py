"""Secrets in source code: what is found, what only looks like it, and what stands there afterwards."""

from __future__ import annotations

import ast
import random
import string

import pyarrow as pa
import pytest
from curator_text import CodeSecrets
from curator_text.privacy.secrets import KEYS, NAMES, entropy, find_secrets, is_secret

from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage

RNG = random.Random(7)


def chance(n, letters=string.ascii_letters + string.digits):
    """So many letters that look drawn by chance."""
    while not is_secret(made := "".join(RNG.choices(letters, k=n)), 2.9 if n > 12 else 0):
        pass
    return made


HEX, BASE32 = "0123456789abcdef", string.ascii_uppercase + "234567"
SECRETS = {
    "age": "AGE-SECRET-KEY-1" + chance(58, BASE32), "anthropic": "sk-ant-api03-" + chance(95), "aws": "AKIA" + chance(16, BASE32),
    "crates.io": "cio" + chance(32), "databricks": "dapi" + chance(32, HEX), "digitalocean": "dop_v1_" + chance(64, HEX),
    "discord": "MTIzNDU2Nzg5MDEyMzQ1Njc4." + chance(6) + "." + chance(38), "docker": "dckr_pat_" + chance(27),
    "doppler": "dp.pt." + chance(43), "figma": "figd_" + chance(40), "github": "ghp_" + chance(36), "gitlab": "glpat-" + chance(20),
    "google": "AIza" + chance(35), "grafana": "glsa_" + chance(32) + "_" + chance(8, HEX), "groq": "gsk_" + chance(52),
    "heroku": "HRKU-AA" + chance(58), "huggingface": "hf_" + chance(34, string.ascii_letters), "linear": "lin_api_" + chance(40),
    "jwt": "eyJ" + chance(20) + ".eyJ" + chance(40) + "." + chance(43), "mailchimp": chance(32, HEX) + "-us12",
    "mailgun": "key-" + chance(32, HEX),
    "newrelic": "NRAK-" + chance(27, string.ascii_uppercase + string.digits), "notion": "ntn_" + chance(46), "npm": "npm_" + chance(36),
    "openai": "sk-proj-" + chance(120), "perplexity": "pplx-" + chance(48), "postman": "PMAK-" + chance(24, HEX) + "-" + chance(34, HEX),
    "private_key": "-----BEGIN PRIVATE KEY-----\n" + "\n".join(chance(64) for _ in range(4)) + "\n-----END PRIVATE KEY-----",
    "pulumi": "pul-" + chance(40, HEX), "pypi": "pypi-AgE" + chance(150), "replicate": "r8_" + chance(37),
    "rubygems": "rubygems_" + chance(48, HEX),
    "sendgrid": "SG." + chance(22) + "." + chance(43), "sentry": "sntrys_" + chance(80), "shopify": "shpat_" + chance(32, HEX),
    "slack": "xoxb-123456789012-123456789012-" + chance(24), "square": "sq0atp-" + chance(22), "stripe": "sk_live_" + chance(24),
    "supabase": "sbp_" + chance(40, HEX), "telegram": "712345678:AA" + chance(33), "terraform": chance(14) + ".atlasv1." + chance(65),
    "twilio": "SK" + chance(32, HEX), "vault": "hvs." + chance(24), "xai": "xai-" + chance(80)}


def test_each_service_has_an_example_here():
    assert SECRETS.keys() == KEYS.keys() - {"azure"}


@pytest.mark.parametrize("around", ["x = '{}'", "TOKEN={}\n", "see {}, or", '{{"a":"{}"}}', "{}", "https://a.b/?k={}&c=d"], ids=range(6))
def test_each_shape_is_found_whatever_stands_around_it(around):
    for name, secret in SECRETS.items():
        if name != "private_key" or "?" not in around:
            text = around.format(secret)
            assert [(text[a:b], kind) for a, b, kind in find_secrets(text)] == [(secret, name)]


@pytest.mark.parametrize(("text", "value"), [
    ('password = "tr0ub4dor&3"', "tr0ub4dor&3"), ("'api_key': 'q8Zk2Lm9Xv4Tn7Rb1'", "q8Zk2Lm9Xv4Tn7Rb1"), ('DB_PASSWD="s3cr3t-Horse9"',
    "s3cr3t-Horse9"),
    ('client_secret := "8f14e45fceea167a5a36dedd4bea2543"', "8f14e45fceea167a5a36dedd4bea2543"),
    ("AccountKey=" + "q8Zk2Lm9Xv4Tn7Rb1p5" * 2 + "AbCd==",
     "q8Zk2Lm9Xv4Tn7Rb1p5" * 2 + "AbCd=="), ("postgres://me:h0rse-Battery@db:5432/x", "h0rse-Battery")])
def test_what_is_given_to_a_name_or_stands_in_an_address_is_found(text, value):
    assert [text[a:b] for a, b, _ in find_secrets(text, NAMES)] == [value]


@pytest.mark.parametrize("text", [
    "AKIAIOSFODNN7EXAMPLE", "AKIAXXXXXXXXXXXXXXXX", "ghp_" + "x" * 36, "ghp_short", "sk-" + "-".join(["word"] * 12)[:45] + "xxxx",
    "hf_token", 'password = "password"', 'password = os.environ["DB_PASSWORD_1"]',
    'token = "${SECRET_TOKEN_12345}"', 'password: "{{ vault.password1 }}"',
    'token_type = "application/x-www-form-urlencoded"', 'key = "some_long_setting_name_2"', 'secret = "<your-secret-1234567>"',
    'api_key = "YOUR_API_KEY_HERE_12345"'.lower().replace("your_", "your-"), "http://user:password@localhost/", "http://host:8080/@me",
    "mysql://root:${PASSWORD}@db/x", 'tokenizer = "bert-base-uncased-2"', 'pwd = "/home/me/data1"', "sha256 = " + "0" * 64,
    'password_field = "input[name=pw1]"', "d41d8cd98f00b204e9800998ecf8427e", "eyJhbGciOiJIUzI1NiJ9", "class Token: pass",
    "-----BEGIN PUBLIC KEY-----"])
def test_what_only_looks_like_it(text):
    assert find_secrets(text, NAMES) == []


def files(*texts):
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(len(texts))], "source": ["a.py"] * len(texts),
                               "text": pa.array(texts, pa.string())}))


CODE = f'KEY = "{SECRETS["github"]}"\nPEM = """{SECRETS["private_key"]}"""\nuse(KEY, "{SECRETS["stripe"]}")\n'


def test_code_is_still_code_and_nothing_is_found_again():
    rows = run_stage(CodeSecrets(), files(CODE, None, "x = 1\n"))["out"]
    assert (rows.column("secret_count"), rows.column("secret_kinds")) == ([3, None, 0], [["github", "private_key", "stripe"], None, []])
    changed = rows.column("text")[0]
    assert ast.parse(changed)
    assert (len(changed), changed.count("\n")) == (len(CODE), CODE.count("\n"))
    assert 'KEY = "ghp_EXAMPLEEX' in changed
    assert "-----BEGIN PRIVATE KEY-----\nEXAMPLE" in changed
    for action in ("replace", "mark", "mask"):
        rest = run_stage(CodeSecrets(action=action), files(*(f"k = {secret}" for secret in SECRETS.values())))["out"].column("text")
        assert not [text for text in rest if find_secrets(text, NAMES)]


def test_counting_leaves_the_text_and_kinds_and_marks_are_chosen():
    assert run_stage(CodeSecrets(action="count"), files(CODE))["out"].column("text") == [CODE]
    one = run_stage(CodeSecrets(kinds=["stripe"], action="mark", marks={"stripe": "$STRIPE"}), files(CODE))["out"]
    assert one.column("text") == [CODE.replace(SECRETS["stripe"], "$STRIPE")]
    check_stage(CodeSecrets(), files(CODE, None, "", "é" * 9))


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="no kind 'amazon'"):
        CodeSecrets(kinds=["amazon"])
    with pytest.raises(ValueError, match="action must be"):
        CodeSecrets(action="drop")
    assert entropy("abcd") == 2.0
