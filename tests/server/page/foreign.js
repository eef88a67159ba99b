() => {
    const allowed = new Set(['html', 'head', 'meta', 'title', 'link', 'script', 'body', 'a', 'abbr', 'article', 'aside', 'bdi',
        'blockquote', 'br', 'button', 'code', 'dd', 'del', 'details', 'dialog', 'div', 'dl', 'dt', 'em', 'fieldset',
        'figcaption', 'figure', 'footer', 'form', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'header', 'hr', 'i', 'img', 'input',
        'ins', 'label', 'legend', 'li', 'main', 'mark', 'nav', 'noscript', 'ol', 'option', 'p', 'path', 'pre', 'progress',
        'section', 'select', 'span', 'strong', 'summary', 'svg', 'table', 'tbody', 'td', 'textarea', 'th', 'thead', 'tr', 'ul',
        'wbr']);
    const once = {script: 1, link: 3, img: 1, meta: 4, title: 1, noscript: 1};
    const found = [];
    for (const [name, most] of Object.entries(once)) {
        const count = document.querySelectorAll(name).length;
        if (count > most) found.push(`${count} ${name}`);
    }
    for (const element of document.querySelectorAll('*')) {
        if (!allowed.has(element.localName)) found.push(element.localName);
        for (const {name, value} of element.attributes) {
            const own = value.startsWith('/static/') || (name === 'href' && value === '#question');
            const link = element.localName === 'a' && /^(https?:[/][/]|[/]convcoa[/]collections[/][^/?#]+[/]files[?]source=)/.test(value)
                && element.rel === 'noopener noreferrer' && element.target === '_blank';
            if (/^on|^srcdoc$|^formaction$|^action$|^srcset$|^is$/.test(name)) found.push(`${element.localName} ${name}`);
            if (name === 'style' && element.id !== 'question') found.push(`${element.localName} style`);
            const loads = ['src', 'href', 'xlink:href', 'data', 'poster'].includes(name);
            if (loads && !own && !link) found.push(`${name} ${value}`);
        }
    }
    return [...new Set(found)].slice(0, 20);
}
