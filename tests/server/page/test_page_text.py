"""What the page makes of texts: a safe part of Markdown, the query in a quote, times, marks in passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

HTML = """async (text) => {
    const {markdown} = await import('/static/js/markdown.js');
    const {h} = await import('/static/js/dom.js');
    const mark = (number) => (number < 3 ? h('b', {}, `mark ${number}`) : null);
    return h('div', {}, markdown(text, mark)).innerHTML.replaceAll(' dir="auto"', '');
}"""
ROOM = """async (text) => {
    const {markdown} = await import('/static/js/markdown.js');
    const {h, at} = await import('/static/js/dom.js');
    const place = h('div.prose', {}, markdown(text, () => null));
    at('conversation').append(place);
    const list = place.querySelector('ol');
    const last = h('span', {}, `${list.start + list.children.length - 1}.\u00a0`);
    place.append(last);
    const found = [last.getBoundingClientRect().width, parseFloat(getComputedStyle(list).paddingInlineStart)];
    place.remove();
    return found;
}"""
"""How wide the last number of a list is, and how much room is before its items; beyond that a turn shows nothing."""
LINK = '<a href="{0}" target="_blank" rel="noopener noreferrer" class="address">{0}</a>'
TEXTS = {
    "One.\nTwo.\n\nThree.": "<p>One.<br>Two.</p><p>Three.</p>",
    "**bold** and *soft* and `a*b*`": "<p><strong>bold</strong> and <em>soft</em> and <code>a*b*</code></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "It was 1982 [1]. No [7].": "<p>It was 1982&nbsp;<b>mark 1</b>. No [7].</p>",
    "# One\n## Two": "<h3>One</h3><h4>Two</h4>",
    "- a\n- b\n  - c": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> said\n> so": "<blockquote><p>said<br>so</p></blockquote>",
    "```sql\nSELECT <1>\n```": '<pre tabindex="0"><code>SELECT &lt;1&gt;</code></pre>',
    "see https://example.org/a.": f"<p>see {LINK.format('https://example.org/a')}.</p>",
    "[words](https://example.org/)": f"<p>words ({LINK.format('https://example.org/')})</p>",
    "![dog](https://example.org/)": f"<p>image: dog ({LINK.format('https://example.org/')})</p>",
    "[words](javascript:alert(1))": "<p>words (javascript:alert(1))</p>",
    "https://good.example@bad.example/": f"<p>{LINK.format('https://bad.example/')}</p>",
    "<b>&lt;</b>": "<p>&lt;b&gt;&amp;lt;&lt;/b&gt;</p>",
    "a\u202eb\x1b[31mc": "<p>ab[31mc</p>",
    "**open and [half](": "<p>**open and [half](</p>",
}
QUERIES = {
    "SELECT a FROM t WHERE b = ' gives ' gives a 1": ["SELECT a FROM t WHERE b = ' gives '", "a 1"],
    "WITH x AS (SELECT 1) SELECT * FROM x": ["WITH x AS (SELECT 1) SELECT * FROM x", ""],
    "A network gives a pattern.": None,
}


@pytest.mark.slow
def test_markdown_becomes_elements(page: Page) -> None:
    assert {text: page.evaluate(HTML, text) for text in TEXTS} == TEXTS
    for first, items in ((1, 12), (1, 120), (1982, 2)):
        number, room = page.evaluate(ROOM, "\n".join(f"{n}. item" for n in range(first, first + items)))
        assert 0 < number <= room, (first, items)


@pytest.mark.slow
def test_a_table_is_a_table_with_its_numbers_to_the_right(page: Page) -> None:
    html = page.evaluate(HTML, "| region | total |\n|---|--:|\n| north | 1,400 |\n| south | 95 |")
    assert '<th scope="col">region</th><th class="number" scope="col">total</th>' in html
    assert '<tr><td>south</td><td class="number">95</td></tr>' in html


@pytest.mark.slow
def test_the_query_of_a_figure_is_told_from_its_result(page: Page) -> None:
    of = """async (quote) => {
        const found = (await import('/static/js/source_panel.js')).queryOf({quote});
        return found && [found.query, found.result];
    }"""
    assert {quote: page.evaluate(of, quote) for quote in QUERIES} == QUERIES


@pytest.mark.slow
def test_marks_count_characters_and_not_their_halves(page: Page) -> None:
    passage = {
        "title": "Faces", "source": "a.md", "text": "\U0001f600\U0001f600 here", "spans": [[3, 7]], "before": "", "after": "",
    }  # fmt: skip
    page.route("**/convcoa/passages?**", lambda route: route.fulfill(json=passage))
    page.evaluate(
        """async () => {
            const {openSource} = await import('/static/js/source_panel.js');
            await openSource({id: 'a', source: 'a.md', quote: 'here'}, {collection: 'facts'});
        }"""
    )
    assert page.locator("#panel mark").inner_text() == "here"
