// A layout by forces: daemons push each other away, links pull them together.
//
// The same changes lead to the same picture: there is no chance in it. It cools down, and rests
// until the graph changes. Of many daemons, each pushes some others only, which are others in each
// step, but so much more.

const LENGTH = 70; // of a link at rest
const PUSH = 420, PULL = 0.5, CENTRE = 0.03, KEEP = 0.6; // forces; the speed that is kept
const COOLING = 0.977, STILL = 0.006, WARM = 0.4;
const MANY = 300; // daemons that each one pushes
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

export class Layout {
	nodes = new Map(); // id -> {id, x, y, vx, vy, degree}
	links = []; // [node, node]
	heat = 0;
	#round = 0;

	/** Whether nothing moves any more. */
	get still() {
		return this.heat < STILL;
	}

	/** Take the graph as it is now: ids, and pairs of ids. Return whether it has changed. */
	update(ids, pairs) {
		const sorted = [...ids].sort(), known = this.nodes;
		const key = JSON.stringify([sorted, pairs]);
		if (key === this.key) return false;
		this.key = key;
		const neighbours = new Map(sorted.map(id => [id, []]));
		for (const [a, b] of pairs) {
			neighbours.get(a)?.push(b);
			neighbours.get(b)?.push(a);
		}
		const first = known.size === 0;
		this.nodes = new Map();
		sorted.forEach((id, at) => this.nodes.set(id, known.get(id) ??
			{ id, vx: 0, vy: 0, ...this.#start(at, neighbours.get(id).map(one => known.get(one))) }));
		for (const node of this.nodes.values()) node.degree = neighbours.get(node.id).length;
		this.links = pairs.map(([a, b]) => [this.nodes.get(a), this.nodes.get(b)])
			.filter(([a, b]) => a && b);
		this.heat = first ? 1 : Math.max(this.heat, WARM);
		return true;
	}

	// On a spiral; later, beside those it is linked to.
	#start(at, beside) {
		const there = beside.filter(Boolean), angle = at * GOLDEN;
		const far = there.length ? LENGTH / 2 : LENGTH / 2 * Math.sqrt(at + 0.5);
		const mean = axis => there.reduce((sum, node) => sum + node[axis], 0) / (there.length || 1);
		return { x: mean("x") + far * Math.cos(angle), y: mean("y") + far * Math.sin(angle) };
	}

	/** Let everything move a step. */
	step() {
		const nodes = [...this.nodes.values()];
		this.heat *= COOLING;
		const every = Math.ceil(nodes.length / MANY), round = this.#round++;
		for (let i = 0; i < nodes.length; i++)
			for (let j = (i + round) % every; j < i; j += every) this.#push(nodes[i], nodes[j], every);
		for (const [a, b] of this.links) {
			const dx = b.x + b.vx - a.x - a.vx, dy = b.y + b.vy - a.y - a.vy;
			const length = Math.hypot(dx, dy) || 1e-6;
			const force = (length - LENGTH) / length * this.heat * PULL / Math.min(a.degree, b.degree);
			const share = a.degree / (a.degree + b.degree); // the one with fewer links moves more
			b.vx -= dx * force * share;
			b.vy -= dy * force * share;
			a.vx += dx * force * (1 - share);
			a.vy += dy * force * (1 - share);
		}
		for (const node of nodes) {
			node.vx = (node.vx - node.x * CENTRE * this.heat) * KEEP;
			node.vy = (node.vy - node.y * CENTRE * this.heat) * KEEP;
			node.x += node.vx;
			node.y += node.vy;
		}
	}

	#push(a, b, times) {
		const dx = a.x - b.x || 1e-3, dy = a.y - b.y || 1e-3;
		const force = PUSH * times * this.heat / Math.max(dx * dx + dy * dy, 25);
		a.vx += dx * force;
		a.vy += dy * force;
		b.vx -= dx * force;
		b.vy -= dy * force;
	}
}
