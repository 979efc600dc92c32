"""The page in a browser: drag, filter, play, page, keys, and texts that would like to be more than text."""

from __future__ import annotations

import io
import json
import shutil
import time

import pytest

from tests.explore.runs import HOSTILE, STEPS, SVG, made, png, texts, wav
from tests.explore.test_server import served

selenium = pytest.importorskip("selenium")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (shutil.which("chromium") and shutil.which("chromedriver")),
                                                   reason="wants chromium and its driver")]
ROWS = 150
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--autoplay-policy=no-user-gesture-required",
           "--window-size=1280,900")


def film():
    """Two seconds of mp4."""
    av = pytest.importorskip("av")
    import numpy as np

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(20):
            picture = np.full((48, 64, 3), i * 12, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    rows = [{**row, "picture": None, "sound": None, "film": None} for row in texts(ROWS)]
    rows[20]["picture"], rows[21]["picture"], rows[25]["sound"], rows[26]["film"] = png(), SVG, wav(2), film()
    options = webdriver.ChromeOptions()
    for argument in OPTIONS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    steps = STEPS.replace("n < 10, ", "n < 10, huge: n > 100000, ")
    with served(made(tmp_path_factory.mktemp("seen"), rows, steps)) as server:
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            driver.get(server.url)
            yield Page(driver, server)
        finally:
            driver.quit()


class Page:
    def __init__(self, driver, server):
        self.driver, self.server = driver, server

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.until(lambda: next(iter(self.all(selector)), None), selector)

    def until(self, true, what=""):
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + 15
        while time.monotonic() < end:
            try:
                if found := true():
                    return found
            except StaleElementReferenceException:
                continue
            time.sleep(0.03)
        raise AssertionError(f"never: {what}; {self.driver.get_log('browser')[-3:]}")

    def go(self, fragment):
        self.driver.get("about:blank")
        self.driver.get(f"{self.server.url.partition('?')[0]}#{fragment}")
        self.until(lambda: self.all("html[data-ready]"), "ready")

    def keys(self, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def run(self, script, *given):
        return self.driver.execute_script(script, *given)

    @property
    def fragment(self):
        return self.run("return decodeURIComponent(location.hash).replaceAll('+', ' ')")


def test_a_threshold_is_dragged_and_what_it_would_change_is_told(page):
    from selenium.webdriver import ActionChains

    page.go("thresholds")
    card = page.one('[aria-label="rule few"]')
    page.until(lambda: "drops 10" in card.text, "histogram")
    handle = card.find_element("css selector", ".handle")
    before = page.run("return arguments[0].toDataURL()", card.find_element("css selector", "canvas"))
    drag = ActionChains(page.driver, duration=20).move_to_element(handle).click_and_hold().move_by_offset(60, 0)
    drag.perform()
    said = page.until(lambda: "more go" in card.text and card.text, "what the drag would change")
    assert " % of all" in said.partition("keeps ")[2]
    assert "rule=" not in page.fragment  # nothing is decided while the button is down
    assert page.run("return arguments[0].toDataURL()", card.find_element("css selector", "canvas")) != before
    ActionChains(page.driver).release().perform()
    exact = page.until(lambda: next((one.text for one in page.all("#changes .sum") if " go" in one.text), None), "exact counts")
    value = float(card.find_element("css selector", "input[type=text]").get_attribute("value"))
    told = page.server.questions.answer("what_if", {"changes": [{"stage": "drop", "reason": "few", "values": [value]}]})
    assert f"{told['lost']} go" in exact
    assert f"{told['before']} → {told['after']}" in exact
    assert json.dumps(["drop", "few", [value]], separators=(",", ":")).replace(".0]", "]") in page.fragment
    near = page.until(lambda: page.all('[aria-label="rule few"] .near button'), "nearest records")
    assert len(near) == 8
    page.one("#unfold").click()
    page.until(lambda: "few" in page.one("#changes table").text, "a table by reason")
    page.driver.refresh()  # the address is the view
    page.until(lambda: exact in page.one("#changes .sum").text.replace("Less", "What changes"), "the same view")
    page.one("#reset").click()
    page.until(lambda: not page.all("#changes .panel"), "reset")


def test_a_threshold_moves_by_keys_by_a_number_and_a_rule_can_be_switched_off(page):
    page.go("thresholds")
    card = page.one('[aria-label="rule few"]')
    page.until(lambda: "drops 10" in card.text, "histogram")
    field = card.find_element("css selector", "input[type=text]")
    page.run("arguments[0].focus()", card.find_element("css selector", ".handle"))
    page.keys("\ue014", "\ue014")  # right, twice
    page.until(lambda: "[12]" in page.fragment, "two steps up")
    field.send_keys("\ue009a\ue000", "7\n")  # all of it chosen, and typed over
    page.until(lambda: "[7]" in page.fragment, "a number")
    page.until(lambda: "3 come back" in page.one("#changes").text, "exact")
    card.find_element("css selector", "input[type=checkbox]").click()
    page.until(lambda: "null" in page.fragment, "off")
    page.until(lambda: "come back" in page.one("#changes .sum").text and "10 come" in page.one("#changes .sum").text, "all come back")
    assert page.server.questions.answer("write", {"changes": [{"stage": "drop", "reason": "few", "values": None}]})["arguments"]


def test_rules_that_dropped_nothing_wait_folded_and_ask_nothing(page):
    page.go("thresholds")
    idle = page.one("details")
    assert idle.find_element("css selector", "summary").text == "1 rule that dropped none"
    said = "return arguments[0].querySelector('.says').textContent"
    page.until(lambda: "drops 10" in page.one('[aria-label="rule few"]').text, "histogram of a rule that dropped some")
    assert not page.run(said, idle)
    idle.find_element("css selector", "summary").click()
    page.until(lambda: page.run(said, idle) == "drops none", "its histogram")


@pytest.mark.parametrize(("tab", "card", "said"), [("thresholds", "rule few", "drops 3,"), ("scores", "n", "0 to 2")])
def test_an_answer_that_comes_late_does_not_show_the_numbers_of_a_filter_that_is_gone(page, tab, card, said):
    page.go(tab)
    says = page.one(f'[aria-label="{card}"] .says')
    page.until(lambda: says.text, "histogram")
    page.run("""const real = fetch;
      Object.assign(window, { late: [], read: 0 });
      window.fetch = async (url, how) => {
        const answer = await real(url, how);
        if (!url.endsWith("histogram") || !how.body.includes("n < 5")) return answer;
        const told = await answer.json();
        await new Promise((go) => late.push(go));
        setTimeout(() => { read += 1; }); // behind all that the page does with it
        return { ok: answer.ok, json: async () => told };
      };""")
    page.one("input.where").send_keys("n < 5\n")
    page.until(lambda: page.run("return late.length"), "the first question")
    page.one("input.where").send_keys("\ue009a\ue000", "n < 3\n")
    page.until(lambda: said in says.text, "the second answer")
    page.run("for (const go of late) go()")
    page.until(lambda: page.run("return read === late.length"), "the first answer")
    assert said in says.text


def test_the_records_nearest_to_a_threshold_are_those_of_the_filter(page):
    page.go("thresholds")
    card = page.one('[aria-label="rule few"]')
    page.until(lambda: "drops 10" in card.text, "histogram")
    card.find_element("css selector", "input[type=text]").send_keys("\ue009a\ue000", "20\n")
    near = '[aria-label="rule few"] .near button .number'
    page.until(lambda: len(page.all(near)) == 8, "nearest records")
    page.one("input.where").send_keys("n < 5\n")
    page.until(lambda: {one.text for one in page.all(near)} == {"1", "2", "3", "4"}, "those of the filter")


def test_groups_are_ordered_by_a_click_on_a_column(page):
    page.go("groups?by=reason")
    cells = "return [...document.querySelectorAll('td.name button')].map((one) => one.textContent)"
    page.until(lambda: page.run(cells), "groups")
    found = {row["value"] or "no value": row for row in page.server.questions.answer("counts", {"by": "reason"})["rows"]}
    assert page.run(cells) == sorted(found, key=lambda name: found[name]["data"] - found[name]["all"])
    for title, column in (("share lost", lambda row: (row["data"] - row["all"]) / row["all"]), ("records", lambda row: -row["all"])):
        button = "[...document.querySelectorAll('th button')].find((one) => one.textContent.startsWith(arguments[0]))"
        page.run(f"{button}.click()", title)
        expected = sorted(found, key=lambda name, column=column: (column(found[name]), -found[name]["all"]))
        page.until(lambda expected=expected: page.run(cells) == expected, title)
    page.run(f"{button}.click()", "records")
    page.until(lambda expected=expected: page.run(cells) == expected[::-1], "the other way round")
    assert page.one("th[aria-sort=ascending]").text.startswith("records")
    page.driver.refresh()
    page.until(lambda expected=expected: page.run(cells) == expected[::-1], "the same view")


def test_records_are_filtered_by_choice_by_search_and_by_sql(page):
    page.go("records")
    page.until(lambda: f"{ROWS} records" in page.one("#total").text, "all")
    page.run("const s = document.querySelector('select[aria-label=reason]'); s.value = '\"few\"'; s.dispatchEvent(new Event('change'))")
    page.until(lambda: page.one("#total").text == "10 records", "by reason")
    assert len(page.all(".tile")) == 10
    assert "is.reason=few" in page.fragment
    where = page.one("input.where")
    where.send_keys("n < \n")
    page.until(lambda: "not valid SQL" in page.one("#wrong").text, "an error that says what is wrong")
    assert len(page.all(".tile")) == 10
    where.clear()
    where.send_keys("n < 4\n")
    page.until(lambda: page.one("#total").text == "4 records", "by SQL too")
    page.all(".chip button")[0].click()
    page.until(lambda: "is.reason" not in page.fragment, "a chip taken out")
    page.keys("0")
    search = page.one("input.search")
    search.send_keys("number 77.\n")
    page.until(lambda: page.one("#total").text == "1 record" and "number 77." in page.one(".tile").text, "found")


def test_more_records_come_as_one_scrolls_and_keys_go_through_them(page):
    page.go("records")
    page.until(lambda: len(page.all(".tile")) >= 48, "first page")
    last = "scrollTo(0, document.body.scrollHeight); return document.querySelectorAll('.tile').length"
    page.until(lambda: page.run(last) == ROWS, "all of them")
    page.run("scrollTo(0, 0)")
    page.keys("j")
    first = page.until(lambda: page.one("#record h2").text, "the first record")
    page.keys("j")
    page.until(lambda: page.one("#record h2").text not in ("", first), "the second")
    page.keys("k")
    page.until(lambda: page.one("#record h2").text == first, "the first again")
    page.keys("\ue00c")
    page.until(lambda: not page.all("#record[open]") and "open" not in page.fragment, "closed")
    page.keys("?")
    assert "Shift" in page.until(lambda: page.one("#help[open]").text, "help")
    page.keys("\ue00c", "1")
    page.until(lambda: page.fragment.startswith("#thresholds"), "a tab by its number")
    page.keys("/")
    assert "search" in page.run("return document.activeElement.className")


def test_sound_and_film_play_and_go_to_a_place(page):
    for name, kind in (("r025", "audio"), ("r026", "video")):
        page.go(f'records?open=["{name}"]')
        player = page.one(f"#record {kind}")
        page.until(lambda player=player: page.run("return arguments[0].duration > 1.5", player), "loaded")
        page.run("arguments[0].muted = true; arguments[0].play()", player)
        page.until(lambda player=player: page.run("return arguments[0].currentTime > 0.1", player), "playing")
        page.run("arguments[0].pause(); arguments[0].currentTime = 1.2", player)
        there = "return Math.abs(arguments[0].currentTime - 1.2) < 0.2 && !arguments[0].seeking"
        page.until(lambda player=player, there=there: page.run(there, player), "there")
    page.go('records?open=["r025"]')
    page.until(lambda: page.all("canvas.wave[data-ready]"), "waveform")


def test_hostile_texts_are_texts_and_svg_is_no_picture(page):
    page.go('records?open=["r020"]')
    assert HOSTILE in page.until(lambda: page.one("#record .text").text, "the text")
    page.until(lambda: page.run("const i = document.querySelector('#record img'); return i && i.naturalWidth === 24"), "the picture")
    page.go('records?open=["a/../b\\n<b>"]')
    page.one("#record .other button").click()
    page.until(lambda: SVG.decode() in page.one("#record .other pre").text, "SVG as text")
    assert page.run("return document.title") == "looked · Curator"
    assert not page.all("#record svg, #record script, .text img")
    assert not [line for line in page.driver.get_log("browser") if "Content Security Policy" in line["message"]]


@pytest.mark.parametrize("tab", ["thresholds", "scores", "groups", "records", 'records?open=["r025"]'])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(page, tab):
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True})
    try:
        page.go(tab)
        page.until(lambda: page.all("main > *"), "something")
        time.sleep(0.3)
        assert page.run("return document.documentElement.scrollWidth") <= 390
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
