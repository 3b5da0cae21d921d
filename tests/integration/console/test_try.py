"""A file of answers as an upload: the page of `streamer try`, asked once where it is unsure, and nothing is kept."""

import html
import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pytest
from selenium.webdriver.common.by import By

from streamer.cli import DONE, main
from streamer.console.trial import MOST_BYTES
from tests.integration.console.conftest import Answer, Client, Site
from tests.integration.console.test_pages import PHONE, Visitor
from tests.services.browser import Browser
from tests.unit.claims.test_evaluated_claims import lines
from tests.unit.frames.test_gate_on_tables import answers


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "answers.csv"
    pd.DataFrame(answers(120)).drop(columns=["answer"]).to_csv(path, index=False)
    return path


def parts(fields: dict[str, str], name: str = "", content: bytes | None = None) -> tuple[bytes, str]:
    said = [
        f'Content-Disposition: form-data; name="{one}"\r\n\r\n{value}'.encode()
        for one, value in fields.items()
    ]
    if content is not None:
        said.append(
            f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content
        )
    body = b"".join(b"--BOUNDARY\r\n" + one + b"\r\n" for one in said) + b"--BOUNDARY--\r\n"
    return body, "multipart/form-data; boundary=BOUNDARY"


def upload(client: Client, fields: dict[str, str], name: str = "", content: bytes | None = None) -> Answer:
    body, kind = parts({"key": client.key, "budget": "10"} | fields, name, content)
    return client._send("POST", "/try", body, {"content-type": kind})


def said(answer: Answer) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.body)).split())


def test_an_upload_gets_the_page_that_the_command_writes(people: Site, table: Path) -> None:
    assert main(["try", "answers.csv", "--alpha", "10%", "--out", "page.html"]) == DONE
    answer = upload(people.client("viewer"), {}, "answers.csv", table.read_bytes())
    assert answer.status == 200
    back = '<p><a href="/try">Try another file</a></p>'
    assert (back in answer.body, answer.body.replace(back, "")) == (True, Path("page.html").read_text())
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert not list(Path(tempfile.gettempdir()).glob("streamer-try-*/upload.csv"))


def test_of_claims_it_says_what_would_ship(people: Site, tmp_path: Path) -> None:
    content = "".join(json.dumps(line) + "\n" for line in lines()).encode()
    answer = upload(people.client("viewer"), {"budget": "15"}, "claims.jsonl", content)
    assert (answer.status, '<a href="/try">' in answer.body) == (200, True)
    assert "At a budget of 15 % (any)" in said(answer)
    assert "360 claims of 60 prompts, 33 % wrong; 30 prompts calibrate" in said(answer)


def test_what_has_no_severity_is_said_without_options_of_a_command(people: Site, table: Path) -> None:
    own, claimed = pd.read_csv(table), lines()
    own.loc[:5, "severity"] = None
    del claimed[0]["responses"][0]["claims"][0]["label"]
    claims = "".join(json.dumps(line) + "\n" for line in claimed).encode()
    for name, content in (("own.csv", own.to_csv(index=False).encode()), ("claims.jsonl", claims)):
        page = said(upload(people.client("viewer"), {}, name, content))
        assert "no severity" in page
        assert "--unlabelled" not in page


@pytest.mark.parametrize(("column", "answered"), [("label", {}), ("graded", {"column": "graded"})])
def test_it_asks_once_what_the_severities_are(
    column: str, answered: dict[str, str], people: Site, table: Path
) -> None:
    own = pd.read_csv(table).rename(columns={"severity": column})
    own[column] = 1 - own[column]
    viewer = people.client("viewer")
    question = upload(viewer, {}, "own.csv", own.to_csv(index=False).encode())
    assert "In own.csv, wh" in said(question)
    token = re.search(r'name="upload" value="([^"]+)"', question.body)
    page = upload(viewer, {"upload": token[1], "one": "right", **answered})
    assert main(["try", str(table), "--alpha", "10%", "--out", "page.html"]) == DONE
    assert re.search(r'class="result">([^<]+)', Path("page.html").read_text())[1] in page.body
    assert "no longer here" in said(upload(viewer, {"upload": token[1], "one": "right"}))


def test_who_may_not_or_sends_too_much_or_nonsense_is_told(people: Site, table: Path) -> None:
    viewer, labeller, content = people.client("viewer"), people.client("labeller"), table.read_bytes()
    assert upload(labeller, {}, "a.csv", content).status == 403
    assert upload(viewer, {"key": "other"}, "a.csv", content).status == 403
    body, kind = parts({}, "a.csv", content)
    assert Client(people)._send("POST", "/try", body, {"content-type": kind}).status == 403
    assert viewer.act("/try", budget="10").status == 409
    large = upload(viewer, {}, "a.csv", b"x" * (MOST_BYTES + 70_000))
    assert (large.status, "at most 16 MiB" in said(large)) == (409, True)
    for fields, sent, expected in (
        ({}, b"", "choose a file"),
        ({}, b"PK\x03\x04 and more", "save the sheet as CSV"),
        ({"budget": "200"}, content, "the budget must be a number"),
        ({"columns": "nonsense"}, content, "nonsense"),
    ):
        answer = upload(viewer, fields, "<b>a.csv", sent)
        assert expected.lower() in said(answer).lower()
        assert "<b>a" not in answer.body


def test_a_person_uploads_it_on_a_phone_and_at_a_desk(people: Site, table: Path, browser: Browser) -> None:
    ana = Visitor(browser, people)
    ana.goes("/login")
    ana.signs_in("viewer")
    for width, dark in ((None, False), (PHONE, True)):
        ana.looks(width=width, dark=dark)
        ana.goes("/try")
        ana.driver.find_element(By.ID, "file").send_keys(str(table))
        ana.driver.find_element(By.CSS_SELECTOR, "form.card button").click()
        ana.until(lambda: ana.heading() == "answers.csv", "the page")
        assert not ana.too_wide()
        ana.run("const at = document.getElementById('at'); at.value = 30; at.oninput()")
        assert "At a budget of 30" in ana.run("return document.getElementById('now').textContent")
        ana.driver.find_element(By.LINK_TEXT, "Try another file").click()
        ana.until(lambda: ana.heading() == "Try a file", "the way back, still signed in")
    assert [one for one in browser.complaints() if "favicon" not in one] == []
    browser.forget()


def test_it_is_served_without_a_console(table: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "streamer", "try", "--http", "0", "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            address = re.search(r"http://\S+?(?=;|\s)", process.stdout.readline())
            connection = http.client.HTTPConnection(urlsplit(address[0]).netloc, timeout=240)
            body, kind = parts({"budget": "10", "columns": ""}, "answers.csv", table.read_bytes())
            connection.request("POST", "/try", body, {"content-type": kind})
            assert "Worth it: at 10 % you answer" in connection.getresponse().read().decode()
            connection.request("POST", "/try", body, {"content-type": kind, "origin": "http://evil.example"})
            assert connection.getresponse().status == 403
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
