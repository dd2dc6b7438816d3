// Words sorts the words that it reads, and says so when it has no memory for one.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
	struct word *next;
	char text[]; // with its end
};

// insert puts a copy of text into the sorted list, or returns -1 if there is no memory.
static int insert(struct word **list, const char *text)
{
	struct word *w = malloc(sizeof *w + strlen(text) + 1);
	if (!w)
		return -1;
	strcpy(w->text, text);
	while (*list && strcmp((*list)->text, text) < 0)
		list = &(*list)->next;
	w->next = *list;
	*list = w;
	return 0;
}

int main(void)
{
	struct word *list = NULL;
	char text[64];
	int lost = 0;

	while (scanf("%63s", text) == 1)
		if (insert(&list, text)) {
			printf("%s is lost: %s\n", text, strerror(errno));
			lost++;
		}
	for (struct word *w = list; w; w = w->next)
		puts(w->text);
	return lost ? 3 : 0;
}
