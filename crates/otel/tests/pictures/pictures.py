"""Takes the pictures of the trace that the example `otlp` has sent to a Phoenix server.

`pictures.py DRIVER ADDRESS FOLDER`: DRIVER is the address of a WebDriver server, and ADDRESS that of Phoenix.
"""

import base64
import json
import pathlib
import sys
import time
import urllib.request

driver, address, folder = sys.argv[1:4]
BROWSER = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1360,860"]
# The name of each picture, and the span and the event that it shows.
PICTURES = [
    ("approval", "invoke_agent cleaner", "turnstream.approval_wait"),
    ("retry", "chat claude-sonnet-4-5", "turnstream.retry"),
]


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as response:
        return json.load(response)


def find_all(path):
    for _ in range(200):
        found = call("POST", f"{session}/elements", {"using": "xpath", "value": path})["value"]
        if found:
            return [next(iter(element.values())) for element in found]
        time.sleep(0.1)
    sys.exit(f"the page has no {path}")


def click(path):
    for element in find_all(path):
        call("POST", f"{session}/element/{element}/click", {})
    time.sleep(1)


project = call("GET", f"{address}/v1/projects/default")["data"]["id"]
trace = call("GET", f"{address}/v1/projects/default/spans?limit=1")["data"][0]["context"]["trace_id"]
browser = {"alwaysMatch": {"goog:chromeOptions": {"args": BROWSER}}}
session = f"{driver}/session/" + call("POST", f"{driver}/session", {"capabilities": browser})["value"]["sessionId"]
try:
    call("POST", f"{session}/url", {"url": f"{address}/projects/{project}/traces/{trace}"})
    for name, span, event in PICTURES:
        click(f"(//*[text()='{span}'])[1]")
        click("//*[@role='tab'][contains(., 'Events')]")
        click(f"//button[contains(., '{event}')]")
        panel = find_all("//*[@role='dialog']")[-1]
        picture = call("GET", f"{session}/element/{panel}/screenshot")["value"]
        pathlib.Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture))
finally:
    call("DELETE", session)
