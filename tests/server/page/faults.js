() => {
    const found = [];
    const say = (element, what) => found.push(`${element.localName}.${element.className}#${element.id}: ${what}`);
    const shown = (element) => element.checkVisibility({visibilityProperty: true}) && !element.closest('[inert]');
    const name = (element) => (element.getAttribute('aria-label') || element.labels?.[0]?.innerText
        || document.getElementById(element.getAttribute('aria-labelledby'))?.innerText || element.innerText || '').trim();
    if (!document.documentElement.lang) found.push('no language');
    for (const role of ['main', 'nav', 'h1']) if (document.querySelectorAll(role).length !== 1) found.push(`not one ${role}`);
    const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
    for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`two #${id}`);
    for (const element of document.querySelectorAll('button, a, input, select, textarea, [role=region], nav, aside, dialog, progress')) {
        if (shown(element) && !name(element)) say(element, 'no name');
    }
    for (const element of document.querySelectorAll('button, a:not(.prose a), input:not([type=radio]), select, textarea, summary')) {
        const {width, height} = element.getBoundingClientRect();
        const inText = element.matches('.mark, .address, .skip, summary');
        if (shown(element) && !inText && (width < 24 || height < 24)) say(element, `${width} x ${height}`);
    }
    for (const image of document.images) if (!image.hasAttribute('alt')) say(image, 'no alt');
    for (const picture of document.querySelectorAll('svg')) if (!picture.hasAttribute('aria-hidden')) say(picture, 'not hidden');
    for (const element of document.querySelectorAll('[aria-labelledby], [aria-controls], label[for]')) {
        const id = element.getAttribute('aria-labelledby') || element.getAttribute('aria-controls') || element.htmlFor;
        if (!document.getElementById(id)) say(element, `names #${id}, which is not there`);
    }
    for (const list of document.querySelectorAll('ul, ol')) {
        for (const child of list.children) if (child.localName !== 'li') say(list, `holds ${child.localName}`);
    }
    let level = 0;
    for (const heading of document.querySelectorAll('main :is(h1, h2, h3, h4, h5, h6)')) {
        const now = Number(heading.localName[1]);
        if (now > level + 1) say(heading, `after h${level}`);
        level = now;
    }
    return found;
}
