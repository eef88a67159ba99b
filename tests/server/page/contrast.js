() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const parsed = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, under) => [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3])).concat(1);
    const ground = (element) => {
        const layers = [];
        for (let e = element; e; e = e.parentElement) layers.push(parsed(getComputedStyle(e).backgroundColor));
        return layers.reverse().reduce((under, top) => over(top, under), parsed(getComputedStyle(document.body).backgroundColor));
    };
    const light = (colour) => colour.slice(0, 3).map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
        .reduce((sum, value, n) => sum + value * [0.2126, 0.7152, 0.0722][n], 0);
    const found = {};
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let checked = 0;
    while (walk.nextNode()) {
        const element = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !element.checkVisibility({visibilityProperty: true})) continue;
        if (element.closest(':disabled, [inert], .hidden, option, noscript')) continue;
        const style = getComputedStyle(element);
        const under = ground(element);
        const [one, other] = [light(over(parsed(style.color), under)), light(under)];
        const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
        checked += 1;
        if (ratio < (large ? 3 : 4.5)) found[`${element.localName}.${element.className}`] = ratio.toFixed(2);
    }
    return [checked, found];
}
