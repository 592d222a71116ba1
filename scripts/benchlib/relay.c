/* The least that a server of one process can do: read, and send what was read to all.

   usage: relay PORT [share | from PORT]

   It looks at nothing but the first bytes of a connection: one that begins with "sub x"
   gets what those send that begin with "pub x", where x is any letter. With "share", each of
   these gets an equal part of each read instead. With "from", it is itself a subscriber "b" of
   another relay. It listens on 127.0.0.1 and waits while one that it sends to does not read. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LETTER = 4, LARGEST = 65536, ROOM = 256 * 1024, EVENTS = 256 };
enum role { UNKNOWN, PUBLISHER, SUBSCRIBER };

static char buffer[ROOM];
static char roles[LARGEST], letters[LARGEST];
static int subscribers[LARGEST];
static size_t count;
static size_t extra; /* who gets the next byte of those that cannot be shared equally */

static void send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* it is gone, which its own event tells */
        data += sent;
        size -= (size_t)sent;
    }
}

static void share(size_t size)
{
    size_t each = size / count, rest = size % count;
    const char *data = buffer;
    for (size_t k = 0; k < count; k++) {
        size_t part = each + ((k + count - extra) % count < rest);
        send_all(subscribers[k], data, part);
        data += part;
    }
    extra = (extra + rest) % count;
}

static void leave(int fd)
{
    for (size_t k = 0; k < count; k++)
        if (subscribers[k] == fd)
            subscribers[k--] = subscribers[--count];
    roles[fd] = UNKNOWN;
    extra = 0;
    close(fd);
}

static int ask(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        exit(1);
    send_all(fd, "sub b\n", 6);
    if (recv(fd, buffer, 3, MSG_WAITALL) != 3)
        exit(1);
    return fd;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN};
    int one = 1, linked = argc > 3, shared = argc == 3, epoll = epoll_create1(0);
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((unsigned short)(argc > 1 ? atoi(argv[1]) : 0));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        return 1;
    event.data.fd = listener;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    if (linked) {
        event.data.fd = ask(atoi(argv[3]));
        epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
    }
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int new = accept(listener, NULL, NULL);
                if (new < 0 || new >= LARGEST)
                    return 1;
                setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.fd = new;
                epoll_ctl(epoll, EPOLL_CTL_ADD, new, &event);
                continue;
            }
            ssize_t size = recv(fd, buffer, ROOM, 0);
            if (size <= 0) {
                leave(fd);
                continue;
            }
            if (roles[fd] == UNKNOWN)
                letters[fd] = size > LETTER ? buffer[LETTER] : 0;
            if (roles[fd] == UNKNOWN && size >= 3 && !memcmp(buffer, "sub", 3)) {
                roles[fd] = SUBSCRIBER;
                subscribers[count++] = fd;
                send_all(fd, "ok\n", 3);
                continue;
            }
            roles[fd] = PUBLISHER;
            if (shared && count > 0)
                share((size_t)size);
            else
                for (size_t k = 0; k < count; k++)
                    if (letters[subscribers[k]] == letters[fd])
                        send_all(subscribers[k], buffer, (size_t)size);
        }
    }
}
