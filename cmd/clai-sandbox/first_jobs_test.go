package main

// firstJobs are of several steps each, as people and agents do them in a project on the first day.
// What each does outside and inside is tested as of firstCommands, in the same home.
var firstJobs = []firstCommand{
	// servers and the network
	{"node", `node -e 'const h=require("http");const s=h.createServer((q,r)=>{let b="";q.on("data",d=>b+=d);q.on("end",()=>r.end("got "+b))}).listen(0,"127.0.0.1",()=>h.request({port:s.address().port,method:"POST"},r=>r.on("data",d=>{console.log(""+d);s.close();})).end("this"))'`, "got this", ""},
	{"node", `node -e 'const n=require("net");const s=n.createServer(c=>c.end("by socket")).listen("s.sock",()=>n.connect("s.sock").on("data",d=>{console.log(""+d);s.close()}))'; ls s.sock 2>/dev/null; true`, "by socket", ""},
	{"node", `echo 'process.send("forked")' >w.js && node -e 'require("child_process").fork("./w.js").on("message",m=>console.log(m))'`, "forked", ""},
	{"python3", `python3 -c 'import socket,threading as t
s=socket.create_server(("127.0.0.1",0)); t.Thread(target=lambda: s.accept()[0].sendall(b"pong")).start()
print(socket.create_connection(s.getsockname()).recv(9))'`, "pong", ""},
	{"python3", `python3 -c 'import asyncio
async def main():
    s = await asyncio.start_server(lambda r, w: w.write(b"async") or w.close(), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); print(await r.read())
asyncio.run(main())'`, "async", ""},
	{"openssl", `openssl req -x509 -newkey ed25519 -nodes -keyout k.pem -out c.pem -days 1 -subj /CN=localhost 2>/dev/null && openssl verify -CAfile c.pem c.pem`, "c.pem: OK", ""},
	{"curl", `echo upload >f && curl -sS -o g file://$PWD/f && cat g && curl -sS --unix-socket /nonexistent http://x/ 2>&1; true`, "upload", ""},
	// databases
	{"sqlite3", `printf 'a,1\nb,2\n' >x.csv && sqlite3 x.db 'create table t(n,v)' '.mode csv' '.import x.csv t' 'select sum(v) from t' && sqlite3 x.db .dump | sqlite3 y.db && sqlite3 y.db 'select count(*) from t'`, "3\n2", ""},
	{"sqlite3", `sqlite3 w.db 'pragma journal_mode=wal; create table t(a)'; for i in 1 2 3 4; do sqlite3 -cmd '.timeout 9000' w.db "insert into t values($i)" & done; wait; sqlite3 w.db 'select count(*) from t'`, "4", ""},
	{"python3", `python3 -c 'import dbm.dumb as d; f = d.open("k"); f["a"] = "kept"; f.close(); print(d.open("k")["a"])'`, "kept", ""},
	// package managers
	{"npm", `mkdir -p packages/a && echo '{"name":"a","version":"1.0.0","scripts":{"hi":"echo from a"}}' >packages/a/package.json && echo '{"name":"root","workspaces":["packages/*"]}' >package.json && npm install --offline --no-audit --no-fund >/dev/null && npm run -w a hi`, "from a", ""},
	{"npm", `git add -A; git commit -qm x --allow-empty; npm version patch >/dev/null && git tag`, "v1.0.1", ""},
	{"python3", `mkdir m && echo 'print("zipped")' >m/__main__.py && python3 -m zipapp m -o m.pyz && python3 m.pyz`, "zipped", ""},
	{"python3", `python3 -m venv --without-pip v && d=$(echo v/lib/python3*/site-packages) && echo 'x="in venv"' >$d/own.py && v/bin/python -c 'import own; print(own.x)'`, "in venv", ""},
	{"go", `go mod edit -require example.org/dep@v1.0.0 -replace example.org/dep=./dep && mkdir dep && (cd dep && go mod init example.org/dep 2>/dev/null && echo 'package dep' >d.go) && go mod vendor 2>&1; go work init . ./dep && GOFLAGS= go list -m`, "example.org/dep", ""},
	// editors, and what takes an editor
	{"git", `echo x >>file && EDITOR='sh -c "echo by editor >\$0"' git commit -qa && git log -1 --format=%s`, "by editor", ""},
	{"git", `for i in 1 2; do echo $i >$i; git add $i; git commit -qm $i; done; GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -qi HEAD~2 2>&1; git log --oneline | wc -l`, "2", ""},
	{"git", `echo x >>file && printf 'y\n' | git add -p >/dev/null && git diff --cached --stat`, "1 file changed", ""},
	{"ed", `printf '%s\n' ',s/needle/pin/' w q | ed -s file && cat file`, "pin", ""},
	{"vim", `vim -es -c 'g/hay/d' -c wq file; cat file; vim -es +'e new' +'normal ihello' +wq; cat new`, "hello", ""},
	{"perl", `perl -pi.bak -e s/needle/pin/ file && cat file file.bak`, "pin\nhay\nneedle", ""},
	// git, further
	{"git", `git switch -qc a && echo a >file && git commit -qam a && git switch -q main && echo b >file && git commit -qam b && git merge a >/dev/null 2>&1; git checkout -q --theirs file && git add file && git commit -qm merged && cat file`, "a", ""},
	{"git", `echo x >n && git add n && git commit -qm n && git revert --no-edit HEAD >/dev/null && git cherry-pick -n HEAD~1 && git status --short`, "A  n", ""},
	{"git", `echo x >n && git add n && git commit -qm n && git format-patch -q -1 --stdout >p && git reset -q --hard HEAD~1 && git am -q p && git log -1 --format=%s`, "n", ""},
	{"git", `git notes add -m noted && git notes show && git archive HEAD | tar t | head -n1 && git grep -n needle && git blame file | wc -l`, "noted", ""},
	{"git", `git clone -q --depth 1 file://$HOME/origin shallow && git -C shallow sparse-checkout set sub && ls shallow`, "sub", ""},
	{"git", `git bundle create -q b main && git clone -q -b main b from-bundle && git -C from-bundle log --format=%s`, "first", ""},
	{"git", `for i in 1 2 3 4 5; do echo $i >f; git add f; git commit -qm $i; done; git bisect start HEAD HEAD~4 >/dev/null; git bisect run sh -c 'test $(cat f) -lt 3' >/dev/null 2>&1; git log -1 --format=%s bisect/bad; git bisect reset 2>&1`, "3\n", ""},
	{"git", `for i in 1 2 3; do echo $i >f$i; git add .; git commit -qm $i; done; git rebase -q --exec 'test -e f1' HEAD~2 && git log -1 --format=%s`, "3", ""},
	{"git", `for i in 1 2; do echo $i >file; git commit -qam $i; done; git switch -qc t HEAD~1; echo x >file; git commit -qam x; git rebase -q main >/dev/null 2>&1; echo y >file; git add file; GIT_EDITOR=true git rebase --continue >/dev/null && git log -1 --format=%s`, "x", ""},
	{"git", `git switch -qc a; for i in 1 2; do echo $i >file; git commit -qam $i; done; git switch -q main; echo b >file; git commit -qam b; git cherry-pick a~2..a >/dev/null 2>&1; git cherry-pick --abort; git log -1 --format=%s`, "b", ""},
	{"git", `git init -q lib && (cd lib && echo l >l && git add l && git commit -qm lib) && git subtree add -q --prefix=vendor/lib ./lib main 2>&1; ls vendor/lib`, "l", ""},
	{"git", `git worktree add -q wt -b t && cd wt && echo w >w && git add w && git commit -qm w && cd .. && git merge -q t && git worktree remove wt && git branch -d t && cat w`, "w", ""},
	{"git", `git clone -q ~/origin c && cd c && git switch -qc f && echo f >f && git add f && git commit -qm f && git commit -q --amend -m g && git status --short && git log -1 --format=%s`, "g", ""},
	{"git", `echo s >secret; git add .; git commit -qm s; FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --index-filter 'git rm -q --cached --ignore-unmatch secret' HEAD >/dev/null 2>&1; git ls-files | grep -c secret; git log -1 --format=%s`, "0\ns", ""},
	{"git", `git maintenance run 2>&1; git commit-graph write; git repack -adq; git multi-pack-index write 2>&1; git fsck && git log --format=%s`, "first", ""},
	{"git", `mkdir .github && echo w >.github/w.yml && printf 'a\n' >.prettierrc && cp .prettierrc .editorconfig && cp .prettierrc .nvmrc && git add -A && git commit -qm d && git status --short && ls -A`, ".prettierrc", ""},
	{"git", `git sparse-checkout set sub && ls && git sparse-checkout disable && ls`, "Makefile", ""},
	// building, and all that a shell does
	{"gcc", `echo 'int f(void){return 42;}' >f.c && echo '#include <stdio.h>
int f(void); int main(void){printf("%d\n",f());}' >m.c && gcc -shared -fPIC -o libf.so f.c && gcc -o m m.c -L. -lf -Wl,-rpath,. && ./m`, "42", ""},
	{"make", `printf 'all: a b\na b:\n\techo $@ >$@\n' >M && make -s -j4 -f M && cat a b`, "a\nb", ""},
	{"rsync", `mkdir a && echo x >a/f && rsync -a a/ b/ && cat b/f`, "x", ""},
	{"flock", `for i in 1 2 3; do flock l sh -c 'n=$(cat c 2>/dev/null || echo 0); echo $((n+1)) >c' & done; wait; cat c`, "3", ""},
	{"xargs", `seq 20 | xargs -P4 -n1 sh -c 'echo $0 >f.$0' && ls f.* | wc -l && split -n 3 file part. && cat part.* | cmp - file && sha256sum file >s && sha256sum -c s`, "20\nfile: OK", ""},
	{"python3", `python3 -c 'import multiprocessing as m
with m.Pool(2) as p: print(sum(p.map(abs, range(-9, 1))))'`, "45", ""},
	{"python3", `python3 -c 'from multiprocessing import shared_memory as s, Lock
m = s.SharedMemory(create=True, size=8); m.buf[0] = 42; o = s.SharedMemory(m.name); print(o.buf[0]); Lock().acquire(); o.close(); m.close(); m.unlink()' 2>&1`, "42", ""},
	{"node", `node -e 'const{Worker}=require("worker_threads");new Worker("require(\"worker_threads\").parentPort.postMessage(42)",{eval:true}).on("message",console.log)'`, "42", ""},
	{"ssh-keygen", `ssh-keygen -q -t ed25519 -N '' -f k && ssh-keygen -q -Y sign -n file -f k file && echo "me $(cat k.pub)" >s && ssh-keygen -Y verify -f s -I me -n file -s file.sig <file`, "Good", ""},
	{"zstd", `zstd -q file && zstd -dcq file.zst && xz -k file && xzcat file.xz && base64 file | base64 -d`, "needle", ""},
	// as a new person tries them
	{"pnpm", `echo '{"name":"p"}' >package.json && pnpm install --offline >/dev/null && pnpm store path`, "pnpm/store", ""},
	{"cmake", `printf 'project(x C)\nadd_executable(x a.c)\n' >CMakeLists.txt && cmake -S . -B b >/dev/null && cmake --build b >/dev/null && b/x && echo built`, "built", ""},
	{"redis-server", `redis-server --port 0 --unixsocket $PWD/s --save '' >/dev/null & until [ -S s ]; do :; done; redis-cli -s s set a 1; redis-cli -s s get a; kill $!`, "OK\n1", ""},
	{"ed", `printf 'x\n' | tee a b >/dev/null; printf '1s/x/y/\nw\nq\n' | ed -s a; diff a b; test $? = 1 && echo differ`, "differ", ""},
	{"timeout", `timeout -s INT 1 sleep 9; echo $?; (trap 'echo heard; exit' INT; kill -INT $BASHPID)`, "124\nheard", ""},
	{"seq", `seq 200000 | tail -n1; yes | head -n2; seq 300000 | sha256sum | cut -c1-8`, "a0360312", ""},
	{"date", `TZ=America/New_York date -d @0 +%H; getent hosts localhost >/dev/null && LC_ALL=C sort <<<$'b\na'`, "19\na\nb", ""},
	{"nohup", `nohup sh -c 'echo kept' >log 2>&1; cat log; (sleep 0.1; echo late) & wait; echo all`, "kept\nlate\nall", ""},
	{"rsync", `rsync -a file ~/backup/`, "", "/backup && clai-sandbox grants add --access rw "},
	{"ssh-add", `ssh-add -l`, "", "clai-sandbox run --ssh-agent "},
	// with other tools of every day
	{"git", `echo y >>file && git stash -q && git stash pop -q && git diff --stat`, "1 file changed", ""},
	{"gdb", `printf 'int main(){int*p=0;return *p;}' >c.c && gcc -g c.c -o c && gdb -batch -ex run -ex bt ./c 2>&1 | grep -q 'main ()' && echo traced`, "traced", ""},
	{"script", `script -qec 'tty >/dev/null && echo has a terminal' /dev/null`, "has a terminal", ""},
	{"mkfifo", `mkfifo f && (echo through >f &) && cat f && truncate -s 1G sparse && cp --sparse=always sparse s2 && du -k s2 | cut -f1`, "through\n0", ""},
	{"bash", `cat <(echo one) && coproc C { cat; } && echo two >&${C[1]} && read l <&${C[0]} && echo $l`, "one\ntwo", ""},
	{"tar", `tar czf t.tgz file && mkdir x && tar xzpf t.tgz -C x && cmp file x/file && umask 077 && touch p && stat -c %a p`, "600", ""},
	{"python3", `printf 'import unittest\nclass T(unittest.TestCase):\n def test(self): self.assertEqual(1,1)\n' >test_a.py && python3 -m unittest -q 2>&1 | grep OK`, "OK", ""},
	{"node", `printf 'require("node:test")("a",()=>{})' >a.test.js && node --test a.test.js 2>&1 | grep -E 'pass 1'`, "pass 1", ""},
	{"npm", `mkdir dep && echo '{"name":"dep","version":"1.0.0","bin":{"d":"d.js"}}' >dep/package.json && printf '#!/usr/bin/env node\nconsole.log(42)\n' >dep/d.js && npm install --offline --no-audit --no-fund ./dep >/dev/null 2>&1 && npx --offline d`, "42", ""},
	{"tmux", `tmux -L t -f /dev/null new -d -s a 'sleep 30' && tmux -L t ls && tmux -L t kill-server`, "a: 1 windows", ""},
	{"gpg", `export GNUPGHOME=$PWD/g; mkdir -m 700 g && gpg -q --batch --passphrase '' --quick-gen-key a@b ed25519 2>/dev/null; echo x | gpg -q -sa -u a@b --batch | head -n1; gpgconf --kill all`, "BEGIN PGP MESSAGE", ""},
	{"java", `echo 'class A { public static void main(String[] a) { System.out.println(42); } }' >A.java && java A.java`, "42", ""},
	{"sqlite3", `sqlite3 x.db 'create table t(a); insert into t values(1)' && sqlite3 x.db '.backup y.db' && sqlite3 y.db 'select count(*) from t'`, "1", ""},
	{"tar", `mkdir q && tar cf - file sub Makefile | tar xf - -C q && ls q && ln -s file l && ln file h && cp -a sub s2 && mv s2 s3 && rm -r q s3 && echo moved`, "moved", ""},
	// what no sandbox does
	{"git", `mv .git g`, "", "is protected"},
	{"git", `mkdir .vscode && echo '{}' >.vscode/tasks.json && sleep 0.5 && git add -A && git commit -qm v`, "", "--unprotect .vscode leaves it writable"},
	{"go", `go env -w GOFLAGS=-mod=mod`, "", "clai-sandbox grants add --access rw "},
	{"pip", `pip config set global.x y`, "", "/.config is read-only in the sandbox"},
	{"npm", `npm install -g . --prefix ~/.npm-global`, "", "clai-sandbox grants add --access rw "},
	{"ln", `ln -sf $PWD/bin/gh ~/.local/bin/tool 2>/dev/null || mkdir -p ~/.local/bin`, "", ".local/bin && clai-sandbox grants add --access rw "},
	{"install", `mkdir -p ~/.local 2>/dev/null; install -d ~/.local/share2 2>&1 && rmdir ~/.local/share2`, "", "/share2 && clai-sandbox grants add --access rw "},
	{"chsh", `echo 'export A=1' >>~/.bashrc`, "", "nothing makes all of it writable"},
}
